"""What the rules look at: counts, lengths and kinds of a data set and of a machine. No settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, spare_queries

SAMPLE = 2000
"""Texts whose tokens are counted, evenly spaced; and the most spare queries that are counted."""

COUNTED_CHARACTERS = 16_384
"""What is tokenized of a text to measure its length; the rest is taken to be alike."""


@dataclass(frozen=True)
class DataProfile:
    """A data set and a machine in a few numbers; counts are of train alone."""

    queries: int
    length_90: int
    """Tokens of a training query: nine of ten have no more."""
    length_99: int
    """The same for 99 of a hundred."""
    validation: int
    """Queries of the data's own validation split; 0 where there is none."""
    spare: int
    """Training queries that can leave train together without taking a label's last one; counted up
    to ``SAMPLE``."""
    min_validation: int
    """Held-out queries that an ensemble needs; 0 where none is wanted."""
    encoder: str
    """``bag``, ``convolution`` or ``transformer``."""


def profile_data(
    data: Dataset, *, text: str, tokenizer: Any, encoder: str, min_validation: int
) -> DataProfile:
    """Return the facts of a data set; its test split is not looked at.

    Args:
        data: The data.
        text: ``title`` or ``all``.
        tokenizer: The encoder's; None counts words instead, at four tokens for three of them.
        encoder: Its kind.
        min_validation: Held-out queries that an ensemble needs; 0 where none is wanted.
    """
    train = data["train"]
    lengths = _lengths(_spaced(train.texts(text)), tokenizer)
    order = np.random.default_rng(0).permutation(len(train))
    return DataProfile(
        queries=len(train),
        length_90=_percentile(lengths, 90),
        length_99=_percentile(lengths, 99),
        validation=len(data["validation"]) if "validation" in data else 0,
        spare=len(spare_queries(train.filtered_targets(), order, SAMPLE)),
        min_validation=min_validation,
        encoder=encoder,
    )


def _spaced(texts: Sequence[str]) -> list[str]:
    rows = np.unique(np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(int))
    return [texts[row] for row in rows.tolist()]


def _lengths(texts: list[str], tokenizer: Any) -> NDArray[np.int64]:
    if tokenizer is None:
        words = np.array([len(text.split()) for text in texts], np.int64)
        return -(-4 * words // 3)
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    # Of a long text the beginning is counted; no rule compares lengths beyond it.
    begun = [text[:COUNTED_CHARACTERS] for text in texts]
    counts = np.array([len(found.ids) for found in copy.encode_batch_fast(begun)], np.int64)
    longer = np.array([max(1, len(text)) for text in texts]) / np.array(
        [max(1, len(text)) for text in begun]
    )
    return np.ceil(counts * longer).astype(np.int64)


def _percentile(lengths: NDArray[np.int64], share: int) -> int:
    return int(np.percentile(lengths, share, method="higher")) if len(lengths) else 1
