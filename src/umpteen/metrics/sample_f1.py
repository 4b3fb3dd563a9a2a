"""F1 of each text, averaged: every text counts the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from umpteen.metrics.base import Hits, average, check_k


@dataclass(frozen=True)
class SampleF1:
    """F1, F1@k: the F1 of each text's labels, averaged over texts ("samples" in scikit-learn).

    With k, the first k places are the prediction. Without k, all places are: in ``umpteen
    evaluate`` the labels above the threshold of the ensemble, in ``umpteen score`` whole lines. A
    text with neither predictions nor positives counts as 0.

    >>> str(SampleF1()), str(SampleF1(5))
    ('F1', 'F1@5')
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

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) 2 hits / (predictions + positives)."""
        right = np.count_nonzero(hits.hits[:, : self.k], axis=1)
        return 2.0 * right / np.maximum(1, hits.n_predicted(self.k) + hits.n_positives)

    def mean(self, hits: Hits) -> float:
        """Return the mean over all queries, those without positives included."""
        return average(self.per_query(hits))

    def __str__(self) -> str:
        return "F1" if self.k is None else f"F1@{self.k}"
