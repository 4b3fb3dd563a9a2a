"""Micro-averaged F1: every pair of text and label counts the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umpteen.metrics.base import Hits, check_k


@dataclass(frozen=True)
class MicroF1:
    """MicroF1, MicroF1@k: F1 over all pairs of text and label.

    With k, the first k places are the prediction. Without k, all places are: in ``umpteen
    evaluate`` the labels above the threshold of the ensemble, in ``umpteen score`` whole lines.

    >>> str(MicroF1()), str(MicroF1(5))
    ('MicroF1', 'MicroF1@5')
    """

    k: int | None = None
    positives_for_one: ClassVar[str] = "at most k"

    def __post_init__(self) -> None:
        if self.k is not None:
            check_k(self.k)

    @property
    def of_sets(self) -> bool:
        """Whether it measures label sets, not the first k places."""
        return self.k is None

    def mean(self, hits: Hits) -> float:
        """Return 2 hits / (predictions + positives)."""
        total = int(hits.n_predicted(self.k).sum()) + len(hits.positives)
        return 2.0 * int(hits.hits[:, : self.k].sum()) / total if total else 0.0

    def __str__(self) -> str:
        return "MicroF1" if self.k is None else f"MicroF1@{self.k}"
