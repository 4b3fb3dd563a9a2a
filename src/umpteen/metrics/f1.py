"""F1 of the first k places or of label sets: over texts, over labels, over pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from umpteen.metrics.base import Hits, average, check_k


@dataclass(frozen=True)
class _F1:
    """What they share: a number of places, or none for label sets."""

    k: int | None = None
    positives_for_one: ClassVar[str] = "at most k"
    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.k is not None:
            check_k(self.k)

    @property
    def of_sets(self) -> bool:
        """Whether it measures label sets, not the first k places."""
        return self.k is None

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}@{self.k}"


@dataclass(frozen=True)
class SampleF1(_F1):
    """F1, F1@k: the F1 of each text's labels, averaged over texts ("samples" in scikit-learn).

    With k, the first k places are the prediction. Without k, all places are: in ``umpteen
    evaluate`` the labels above the threshold of the ensemble, in ``umpteen score`` whole lines. A
    text with neither predictions nor positives counts as 0.

    >>> str(SampleF1()), str(SampleF1(5))
    ('F1', 'F1@5')
    """

    name: ClassVar[str] = "F1"

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) 2 hits / (predictions + positives)."""
        right = np.count_nonzero(hits.hits[:, : self.k], axis=1)
        return 2.0 * right / np.maximum(1, hits.n_predicted(self.k) + hits.n_positives)

    def mean(self, hits: Hits) -> float:
        """Return the mean over all queries, those without positives included."""
        return average(self.per_query(hits))


@dataclass(frozen=True)
class MicroF1(_F1):
    """MicroF1, MicroF1@k: F1 over all pairs of text and label; with and without k as ``F1``.

    >>> str(MicroF1()), str(MicroF1(5))
    ('MicroF1', 'MicroF1@5')
    """

    name: ClassVar[str] = "MicroF1"

    def mean(self, hits: Hits) -> float:
        """Return 2 hits / (predictions + positives)."""
        total = int(hits.n_predicted(self.k).sum()) + len(hits.positives)
        return 2.0 * int(hits.hits[:, : self.k].sum()) / total if total else 0.0


@dataclass(frozen=True)
class MacroF1(_F1):
    """MacroF1, MacroF1@k: the F1 of each label, averaged over labels; with and without k as ``F1``.

    The average runs over labels that have a positive in the split, a set no model can change. To
    get the average over the whole label set, multiply by the share of labels that have one: the
    others have an F1 of 0. As k predictions are made whatever the number of positives, 1 is
    reached only by lists that stop where the positives stop.

    >>> str(MacroF1()), str(MacroF1(5))
    ('MacroF1', 'MacroF1@5')
    """

    name: ClassVar[str] = "MacroF1"

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
