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


@dataclass(frozen=True)
class Facts:
    """A data set and a machine in a few numbers; counts are of train alone."""

    queries: int
    labels: int
    labels_per_query: float
    queries_per_label: float
    """Mean over the labels that have any."""
    length_90: int
    """Tokens of a training query: nine of ten have no more."""
    length_99: int
    """The same for 99 of a hundred."""
    label_texts: bool
    """Whether labels have texts that say something: letters, and not their ids again."""
    symmetric: float
    """Share of the training queries whose title is a label's title, too."""
    validation: int
    """Queries of the data's own validation split; 0 where there is none."""
    spare: int
    """Training queries that can leave train together without taking a label's last one; counted up
    to ``SAMPLE``."""
    least_held: int
    """Held-out queries that an ensemble needs; 0 where none is wanted."""
    encoder: str
    """``bag``, ``convolution`` or ``transformer``."""
    device: str
    """``cpu`` or ``cuda``."""
    minutes: float | None = None
    """The time budget, where there is one."""


def look_at(
    data: Dataset,
    *,
    text: str,
    tokenizer: Any,
    encoder: str,
    device: str,
    least_held: int,
    minutes: float | None = None,
) -> Facts:
    """The facts of a data set; its test split is not looked at.

    Args:
        data: The data.
        text: ``title`` or ``all``.
        tokenizer: The encoder's; None counts words instead, at four tokens for three of them.
        encoder: Its kind.
        device: Where training runs.
        least_held: Held-out queries that an ensemble needs; 0 where none is wanted.
        minutes: The time budget.

    Returns:
        The facts.
    """
    train = data["train"]
    counts = np.diff(train.targets.tocsc().indptr)
    used = counts[counts > 0]
    lengths = _lengths(_spaced(train.texts(text)), tokenizer)
    titles = set(data.labels.titles)
    order = np.random.default_rng(0).permutation(len(train))
    return Facts(
        queries=len(train),
        labels=len(data.labels),
        labels_per_query=float(train.targets.nnz / max(len(train), 1)),
        queries_per_label=float(used.mean()) if len(used) else 0.0,
        length_90=_percentile(lengths, 90),
        length_99=_percentile(lengths, 99),
        label_texts=_say_something(data),
        symmetric=sum(title in titles for title in train.titles) / max(len(train), 1),
        validation=len(data["validation"]) if "validation" in data else 0,
        spare=len(spare_queries(train.filtered_targets(), order, SAMPLE)),
        least_held=least_held,
        encoder=encoder,
        device=device,
        minutes=minutes,
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
    return np.array([len(found.ids) for found in copy.encode_batch_fast(texts)], np.int64)


def _percentile(lengths: NDArray[np.int64], share: int) -> int:
    return int(np.percentile(lengths, share, method="higher")) if len(lengths) else 1


def _say_something(data: Dataset) -> bool:
    sample = _spaced(data.labels.titles)
    ids = set(data.labels.ids)
    telling = [title not in ids and any(map(str.isalpha, title)) for title in sample]
    return 2 * sum(telling) > len(sample)
