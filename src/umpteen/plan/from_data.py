"""The numbers of a data set that a plan depends on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.data.checks import TOKENS_PER_WORD
from umpteen.data.dataset import Dataset, Split
from umpteen.data.statistics import count_words
from umpteen.errors import DataError
from umpteen.sorted_unique import sorted_unique

SAMPLE = 5000
"""Texts whose words are counted, evenly spaced."""
GROUPED_ROWS = 200_000
"""Texts that are sorted into groups with a common label, evenly spaced."""
GROUP, GROUPED_TEXTS = 64, 2000
"""Texts of a group, and of all groups, at most."""
WINDOWS = 2048, 8192, 32768
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
    """Heaps' law, a and b: T tokens of a batch and its labels hold about a T^b different ones."""


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
    return DataNumbers(
        len(data.labels),
        len(train),
        _tokens(read, max_tokens),
        train.targets.nnz / len(train),
        _tokens([labels[row] for row in _sample(len(labels)).tolist()], max_tokens),
        heaps_law(data, text=text, max_tokens=max_tokens),
    )


def heaps_law(data: Dataset, *, text: str, max_tokens: int) -> tuple[float, float]:
    """Return a and b of Heaps' law: T words of a batch hold about a T^b different ones.

    Batches hold similar texts: groups of texts with a common label stand for them, and the texts of
    all labels of a group follow. Words are runs of letters and digits, and marks; case does not
    count.

    Args:
        data: The data; its train split counts.
        text: Which texts are read: ``title`` or ``all``.
        max_tokens: Words that count of a text.
    """
    train, names = data["train"], data.labels.encoder_texts(text)
    numbers: dict[str, int] = {}
    read: list[int] = []
    for rows, labels in _groups(train):
        texts = [*train.select(rows).texts(text), *(names[label] for label in labels.tolist())]
        for one in texts:
            words = WORD.findall(one.lower())[:max_tokens]
            read += [numbers.setdefault(word, len(numbers)) for word in words]
        if len(read) > 3 * max(WINDOWS):
            break
    if not read:
        return 1.0, 1.0
    sizes = [size for size in WINDOWS if size <= len(read)] or [len(read)]
    found = [_different(np.array(read[: len(read) // size * size]), size) for size in sizes]
    power = float(np.polyfit(np.log(sizes), np.log(found), 1)[0]) if len(sizes) > 1 else 1.0
    return float(found[-1] / sizes[-1] ** power), power


def _groups(train: Split) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield rows of texts that share a label, each text once, and the labels of all of them."""
    rng = np.random.default_rng(0)
    spaced = _sample(len(train), GROUPED_ROWS)
    targets = train.targets[spaced]
    by_label = targets.tocsc()
    left = targets.getnnz(axis=1) > 0
    n = 0
    for row in rng.permutation(np.flatnonzero(left)).tolist():
        if n >= GROUPED_TEXTS:
            return
        if left[row]:
            label = rng.choice(targets.indices[targets.indptr[row] : targets.indptr[row + 1]])
            found = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
            found = rng.permutation(found[left[found]])[:GROUP]
            left[found] = False
            n += len(found)
            yield spaced[found], sorted_unique(targets[found].indices)


def _different(words: NDArray[np.int64], size: int) -> float:
    """Return how many different values are in a window of so many, on average."""
    windows = np.sort(words.reshape(-1, size), axis=1)
    return 1.0 + float((np.diff(windows, axis=1) > 0).sum(axis=1).mean())


def _sample(n: int, size: int = SAMPLE) -> NDArray[np.int64]:
    return sorted_unique(np.linspace(0, n - 1, min(size, n)).astype(np.int64))


def _tokens(texts: Sequence[str], max_tokens: int) -> float:
    """Return the tokens of a text on average, estimated from words; 1 at least."""
    kept = np.minimum(count_words(texts) * TOKENS_PER_WORD, max_tokens)
    return max(1.0, float(kept.mean()))
