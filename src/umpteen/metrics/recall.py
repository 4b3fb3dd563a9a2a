"""Hits over positives: recall and R-precision, which differ in the denominator alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from umpteen.metrics.base import Hits, average, check_k


@dataclass(frozen=True)
class Recall:
    """R@k: hits among the first k places, over the query's positives.

    Measures how good a candidate list is, at k of 10 or 100. A query without positives counts as 0,
    not as NaN.

    >>> str(Recall(100))
    'R@100'
    """

    k: int
    positives_for_one: ClassVar[str] = "at most k"

    def __post_init__(self) -> None:
        check_k(self.k)

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) hits over positives."""
        return hits.counts(self.k) / np.maximum(hits.n_positives, 1)

    def mean(self, hits: Hits) -> float:
        """Return the mean over all queries, those without positives included."""
        return average(self.per_query(hits))

    def __str__(self) -> str:
        return f"R@{self.k}"


@dataclass(frozen=True)
class RPrecision:
    """RP@k: hits among the first k places, over min(k, the query's positives).

    Like P@k where every query has k positives or more, and able to reach 1 where they have not.

    >>> str(RPrecision(5))
    'RP@5'
    """

    k: int

    def __post_init__(self) -> None:
        check_k(self.k)

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) hits over what k places could hold."""
        return hits.counts(self.k) / np.clip(hits.n_positives, 1, self.k)

    def mean(self, hits: Hits) -> float:
        """Return the mean over all queries, those without positives included."""
        return average(self.per_query(hits))

    def __str__(self) -> str:
        return f"RP@{self.k}"
