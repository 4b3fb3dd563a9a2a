"""Normalised discounted cumulative gain, with binary relevance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.metrics.base import Hits, average, best_discounts, check_k, discounts


@dataclass(frozen=True)
class NDCG:
    """nDCG@k: hits weighted by 1 / log2(place + 1), over the best sum that is possible.

    Best is min(k, positives) hits in the first places, so a query with two positives can reach 1
    at k = 5. Choose it over P@k where the order inside the first k matters.

    >>> str(NDCG(5))
    'nDCG@5'
    """

    k: int

    def __post_init__(self) -> None:
        check_k(self.k)

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) discounted hits over the best that min(k, positives) hits reach."""
        reached = hits.hits[:, : self.k]
        gain = reached @ discounts(reached.shape[1])
        # A perfect list sums in another order than its bound; keep rounding from passing 1.
        return np.minimum(gain / best_discounts(hits.n_positives, self.k), 1.0)

    def mean(self, hits: Hits) -> float:
        """Return the mean over all queries, those without positives included."""
        return average(self.per_query(hits))

    def __str__(self) -> str:
        return f"nDCG@{self.k}"
