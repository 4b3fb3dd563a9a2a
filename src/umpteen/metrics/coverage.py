"""Coverage: how much of the label set is ever predicted right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umpteen.metrics.base import Hits, check_k
from umpteen.sorted_unique import sorted_unique


@dataclass(frozen=True)
class Coverage:
    """C@k: labels hit at least once in the first k places, over labels that have a positive.

    A number over labels, not over queries: it shows whether the tail is reached at all, which P@k
    hides. It grows with the number of queries, so compare on the same split.

    >>> str(Coverage(5))
    'C@5'
    """

    k: int
    positives_for_one: ClassVar[str] = "at most k"

    def __post_init__(self) -> None:
        check_k(self.k)

    def mean(self, hits: Hits) -> float:
        """Return labels hit over labels that could be hit; 0 where none could."""
        possible = np.count_nonzero(hits.labels_with_positives)
        return len(sorted_unique(hits.hit_labels(self.k))) / possible if possible else 0.0

    def __str__(self) -> str:
        return f"C@{self.k}"
