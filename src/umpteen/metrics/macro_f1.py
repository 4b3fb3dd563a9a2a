"""Macro-averaged F1 of the first k places: every label counts the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umpteen.metrics.base import Hits, check_k


@dataclass(frozen=True)
class MacroF1:
    """MacroF1, MacroF1@k: the F1 of each label, averaged over labels.

    With k, the first k places are the prediction. Without k, all places are: in ``umpteen
    evaluate`` the labels above the threshold of the ensemble, in ``umpteen score`` whole lines.

    The average runs over labels that have a positive in the split, a set no model can change. To
    get the average over the whole label set, multiply by the share of labels that have one: the
    others have an F1 of 0. As k predictions are made whatever the number of positives, 1 is
    reached only by lists that stop where the positives stop.

    >>> str(MacroF1()), str(MacroF1(5))
    ('MacroF1', 'MacroF1@5')
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
        """Return the mean of 2 hits / (predictions + positives) over labels with a positive."""
        rows = hits.rows[:, : self.k]
        predicted = np.bincount(rows[rows >= 0], minlength=hits.n_labels)
        right = np.bincount(rows[hits.hits[:, : self.k]], minlength=hits.n_labels)
        positives = hits.labels_with_positives
        judged = positives > 0
        if not judged.any():
            return 0.0
        return float(np.mean(2.0 * right[judged] / (predicted[judged] + positives[judged])))

    def __str__(self) -> str:
        return "MacroF1" if self.k is None else f"MacroF1@{self.k}"
