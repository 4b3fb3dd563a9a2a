"""The numbers of a data set that a plan depends on."""

from __future__ import annotations

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
    )


def _sample(n: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(SAMPLE, n)).astype(np.int64))


def _tokens(texts: Sequence[str], max_tokens: int) -> float:
    """Return the tokens of a text on average, estimated from words; 1 at least."""
    kept = np.minimum(count_words(texts) * TOKENS_PER_WORD, max_tokens)
    return max(1.0, float(kept.mean()))
