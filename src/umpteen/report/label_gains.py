"""Which labels a head finds and which it misses, counted over queries. No drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.report.outcomes import Outcome


@dataclass(frozen=True)
class LabelCounts:
    """How often each label was right and found; every array is (L,)."""

    positives: NDArray[np.int64]
    """Queries that have the label."""
    found: dict[str, NDArray[np.int64]]
    """Of these, queries for which a head has it among its first five."""


def count_labels(outcome: Outcome) -> LabelCounts:
    """Count, for every label, its queries and those each head finds it for."""
    n_labels = outcome.truth.shape[1]
    return LabelCounts(
        positives=np.bincount(outcome.truth.indices, minlength=n_labels),
        found={
            name: np.bincount(head.rows[head.hits], minlength=n_labels)
            for name, head in outcome.heads.items()
        },
    )


def most_gained(counts: LabelCounts, better: str, base: str, most: int) -> NDArray[np.int64]:
    """Return rows of the labels that one head finds more often than another, largest gain first.

    Args:
        counts: From ``count_labels``.
        better: The head that gains.
        base: The head it is compared with.
        most: At most so many.

    Returns:
        Label rows; equal gains by the larger share of the label's queries, then by row.
    """
    gain = counts.found[better] - counts.found[base]
    return _first(gain, gain / np.maximum(1, counts.positives), most)


def most_missed(counts: LabelCounts, head: str, most: int) -> NDArray[np.int64]:
    """Return rows of the labels a head misses for the most queries.

    Equal ones by the larger share.
    """
    missed = counts.positives - counts.found[head]
    return _first(missed, missed / np.maximum(1, counts.positives), most)


def _first(amounts: NDArray[np.int64], shares: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    candidates = np.flatnonzero(amounts > 0)
    order = np.lexsort((candidates, -shares[candidates], -amounts[candidates]))
    return candidates[order[:most]]
