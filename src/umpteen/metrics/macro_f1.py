"""Macro-averaged F1 of the first k places: every label counts the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umpteen.metrics.base import Hits, check_k


@dataclass(frozen=True)
class MacroF1:
    """MacroF1@k: the F1 of each label, with the first k places as predicted, averaged.

    The average runs over labels that have a positive in the split, a set no model can change. To
    get the average over the whole label set, multiply by the share of labels that have one: the
    others have an F1 of 0. As k predictions are made whatever the number of positives, 1 is
    reached only by lists that stop where the positives stop.

    >>> str(MacroF1(5))
    'MacroF1@5'
    """

    k: int

    def __post_init__(self) -> None:
        check_k(self.k)

    def mean(self, hits: Hits) -> float:
        """Return the mean of 2 hits / (predictions + positives) over labels with a positive."""
        rows = hits.rows[:, : self.k]
        predicted = np.bincount(rows[rows >= 0], minlength=hits.n_labels)
        right = np.bincount(hits.hit_labels(self.k), minlength=hits.n_labels)
        positives = hits.labels_with_positives
        judged = positives > 0
        if not judged.any():
            return 0.0
        return float(np.mean(2.0 * right[judged] / (predicted[judged] + positives[judged])))

    def __str__(self) -> str:
        return f"MacroF1@{self.k}"
