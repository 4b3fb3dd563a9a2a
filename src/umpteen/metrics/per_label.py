"""Precision, recall and F1 of single labels, over sets of predicted labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.metrics.base import Hits


@dataclass(frozen=True)
class LabelScores:
    """Counts of each label, and what follows from them; every array is (L,).

    >>> scores = LabelScores(np.array([4, 0]), np.array([2, 0]), np.array([3, 1]))
    >>> scores.precision.tolist(), scores.recall.round(2).tolist(), scores.f1.round(2).tolist()
    ([0.5, nan], [0.67, 0.0], [0.57, 0.0])
    """

    predicted: NDArray[np.int64]
    """Texts for which the label is predicted."""
    right: NDArray[np.int64]
    """Of these, texts that have it."""
    support: NDArray[np.int64]
    """Texts that have the label."""

    @property
    def precision(self) -> NDArray[np.float64]:
        """Share of its predictions that are right; NaN where it is never predicted."""
        return _share(self.right, self.predicted)

    @property
    def recall(self) -> NDArray[np.float64]:
        """Share of its texts that are found; NaN where no text has it."""
        return _share(self.right, self.support)

    @property
    def f1(self) -> NDArray[np.float64]:
        """Harmonic mean of the two; NaN where the label is neither predicted nor there."""
        return _share(2 * self.right, self.predicted + self.support)

    def seen(self) -> NDArray[np.int64]:
        """Return the rows that are predicted or there, by falling support, then by row."""
        rows = np.flatnonzero(self.predicted + self.support)
        return rows[np.argsort(-self.support[rows], kind="stable")]


def label_scores(hits: Hits) -> LabelScores:
    """Count predictions, hits and positives of every label."""
    rows = hits.rows
    return LabelScores(
        np.bincount(rows[rows >= 0], minlength=hits.n_labels),
        np.bincount(rows[hits.hits], minlength=hits.n_labels),
        hits.labels_with_positives,
    )


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
