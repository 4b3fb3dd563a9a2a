"""The numbers of a data set that a plan depends on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.data.checks import TOKENS_PER_WORD
from umpteen.data.dataset import Dataset
from umpteen.data.statistics import count_words
from umpteen.errors import DataError

SAMPLE = 5000
"""Texts whose words are counted, evenly spaced."""
LABELS_PER_TEXT = 4
"""Label texts read for each training text where different words are counted: as in a step's pool."""
WINDOWS = 512, 2048, 8192
"""Numbers of words in which the different ones are counted."""
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class DataNumbers:
    """A data set in the numbers of a plan; counts are of the train split."""

    labels: int
    queries: int
    tokens: float
    """Of a text, on average; estimated from words."""
    positives: float
    """Labels of a text, on average."""
    label_tokens: float
    """Of a label's text, on average; estimated from words."""
    vocabulary: tuple[float, float]
    """Heaps' law: T tokens of texts and label texts hold about a T^b different ones."""


def data_numbers(data: Dataset, *, text: str, max_tokens: int) -> DataNumbers:
    """Return the numbers of a data set.

    Args:
        data: The data; its train split counts.
        text: Which texts are read: ``title`` or ``all``.
        max_tokens: Tokens that are read of a text.

    Returns:
        The numbers.

    Raises:
        DataError: If there is nothing to train on.
    """
    if "train" not in data or not len(data["train"]) or not data["train"].targets.nnz:
        raise DataError("there is nothing to train on: no training text has a label")
    train, labels = data["train"], data.labels.encoder_texts(text)
    read = train.select(_sample(len(train))).texts(text)
    names = [labels[row] for row in _sample(len(labels)).tolist()]
    return DataNumbers(
        len(data.labels),
        len(train),
        _tokens(read, max_tokens),
        train.targets.nnz / len(train),
        _tokens(names, max_tokens),
        heaps_law(read, names, max_tokens),
    )


def heaps_law(
    texts: Sequence[str], label_texts: Sequence[str], max_tokens: int
) -> tuple[float, float]:
    """Return a and b of Heaps' law: T words hold about a T^b different ones.

    Texts come in random order, with four label texts for each. Words are runs of letters and
    digits, and marks; case does not count.

    Args:
        texts: Training texts.
        label_texts: Texts of labels.
        max_tokens: Words that count of a text.
    """
    rng = np.random.default_rng(0)
    of_text, of_label = rng.permutation(len(texts)), rng.permutation(len(label_texts))
    numbers: dict[str, int] = {}
    read: list[int] = []
    for place, row in enumerate(of_text.tolist()):
        start = LABELS_PER_TEXT * place
        some = np.take(of_label, range(start, start + LABELS_PER_TEXT), mode="wrap").tolist()
        for text in (texts[row], *(label_texts[label] for label in some)):
            words = WORD.findall(text.lower())[:max_tokens]
            read += [numbers.setdefault(word, len(numbers)) for word in words]
        if len(read) > 4 * max(WINDOWS):
            break
    if not read:
        return 1.0, 1.0
    sizes = [size for size in WINDOWS if size <= len(read)] or [len(read)]
    found = [_different(np.array(read[: len(read) // size * size]), size) for size in sizes]
    power = float(np.polyfit(np.log(sizes), np.log(found), 1)[0]) if len(sizes) > 1 else 1.0
    return float(found[-1] / sizes[-1] ** power), power


def _different(words: NDArray[np.int64], size: int) -> float:
    """Return how many different values are in a window of so many, on average."""
    windows = np.sort(words.reshape(-1, size), axis=1)
    return 1.0 + float((np.diff(windows, axis=1) > 0).sum(axis=1).mean())


def _sample(n: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(SAMPLE, n)).astype(np.int64))


def _tokens(texts: Sequence[str], max_tokens: int) -> float:
    """Return the tokens of a text on average, estimated from words; 1 at least."""
    kept = np.minimum(count_words(texts) * TOKENS_PER_WORD, max_tokens)
    return max(1.0, float(kept.mean()))
