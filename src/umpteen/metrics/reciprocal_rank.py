"""Mean reciprocal rank: how far down the first right label is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.metrics.base import Hits, average, check_k


@dataclass(frozen=True)
class ReciprocalRank:
    """MRR, MRR@k: one over the place of the first hit, 0 if there is none.

    Without k it looks at all predictions that were made, so their number matters; name a k to
    compare with others.

    >>> str(ReciprocalRank()), str(ReciprocalRank(10))
    ('MRR', 'MRR@10')
    """

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            check_k(self.k)

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) one over the place of the first hit."""
        reached = hits.hits[:, : self.k]
        if reached.shape[1] == 0:
            return np.zeros(len(hits))
        first = reached.argmax(axis=1)  # 0 also where nothing is hit
        return np.where(reached.any(axis=1), 1.0 / (first + 1.0), 0.0)

    def mean(self, hits: Hits) -> float:
        """Return the mean over all queries, those without positives included."""
        return average(self.per_query(hits))

    def __str__(self) -> str:
        return "MRR" if self.k is None else f"MRR@{self.k}"
