"""Precision in the first k places. Its share per frequency bin is in ``bins``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from umpteen.metrics.base import Hits, average, check_k


@dataclass(frozen=True)
class Precision:
    """P@k: hits among the first k places, over k.

    The field's first number. Missing predictions are misses, and a query with fewer than k
    positives cannot reach 1; choose RP@k where that matters.

    >>> str(Precision(5))
    'P@5'
    """

    k: int
    positives_for_one: ClassVar[str] = "k"

    def __post_init__(self) -> None:
        check_k(self.k)

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) hits over k."""
        return hits.counts(self.k) / self.k

    def mean(self, hits: Hits) -> float:
        """Return the mean over all queries, those without positives included."""
        return average(self.per_query(hits))

    def __str__(self) -> str:
        return f"P@{self.k}"
