"""The numbers of a data set that a plan depends on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umpteen.data.dataset import Dataset
from umpteen.data.statistics import count_words
from umpteen.errors import DataError

SAMPLE = 5000
"""Texts whose words are counted, evenly spaced."""
TOKENS_PER_WORD = 4 / 3


@dataclass(frozen=True)
class DataNumbers:
    """A data set in the numbers of a plan; counts are of the train split."""

    labels: int
    queries: int
    tokens: float
    """Of a text, on average; estimated from words."""
    positives: float
    """Labels of a text, on average."""


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
    train = data["train"]
    rows = np.unique(np.linspace(0, len(train) - 1, min(SAMPLE, len(train))).astype(np.int64))
    words = count_words(train.select(rows).texts(text))
    kept = np.minimum(words * TOKENS_PER_WORD, max_tokens)
    return DataNumbers(
        len(data.labels),
        len(train),
        max(1.0, float(kept.mean())),
        train.targets.nnz / len(train),
    )
