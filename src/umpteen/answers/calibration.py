"""From fused scores to probabilities, and thresholds that turn them into sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.answers.candidates import Candidates
from umpteen.answers.features import log_shares, of_query
from umpteen.errors import RunError
from umpteen.metrics.bins import frequency_bins
from umpteen.metrics.hits import find_hits
from umpteen.metrics.threshold import best_threshold
from umpteen.types import TopK

GROUPS = 5
"""Frequency bins with a threshold of their own."""
PLACES = 20
"""Answers of a query that probabilities are fitted and judged on."""
NEWTON_STEPS = 30


@dataclass(frozen=True)
class Calibration:
    """Platt's logistic curve on the logarithm of a candidate's share, shifted for each query.

    The shift reads what tells how much is right at all: how evenly the shares are spread, and the
    best score of each view. Within a query the order of scores is kept.
    """

    views: tuple[str, ...]
    slope: float
    """Of the logarithm of the share; above 0."""
    shift: NDArray[np.float64]
    """Of 1, the entropy of the shares, and each view's best."""
    threshold: float = 0.5
    """The probability that makes micro-F1 largest on validation."""
    group_thresholds: tuple[float, ...] = ()
    """The same for labels of each frequency bin, head to tail."""

    def probabilities(
        self, scores: NDArray[np.float64], candidates: Candidates
    ) -> NDArray[np.float64]:
        """(C,) how likely each candidate is right."""
        logarithms, given = _inputs(scores, candidates, self.views)
        return _sigmoid(self.slope * logarithms + given @ self.shift)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "views": list(self.views),
            "slope": self.slope,
            "shift": self.shift.tolist(),
            "threshold": self.threshold,
            "group_thresholds": list(self.group_thresholds),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Calibration:
        """The calibration of ``as_json``.

        Raises:
            RunError: If the values do not fit.
        """
        try:
            views = tuple(value["views"])
            shift = np.array(value["shift"], np.float64).reshape(2 + len(views))
            groups = tuple(float(each) for each in value["group_thresholds"])
            slope, threshold = float(value["slope"]), float(value["threshold"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"a calibration is damaged ({error}); fit it again") from error
        return cls(views, slope, shift, threshold, groups)


def fit_calibration(
    scores: NDArray[np.float64],
    candidates: Candidates,
    positive: NDArray[np.bool_],
    views: tuple[str, ...],
    *,
    places: int = PLACES,
    decay: float = 1.0,
) -> Calibration:
    """Logistic regression by Newton's method.

    Args:
        scores: (C,) of a model that did not see these queries.
        candidates: The pairs.
        positive: (C,) which are right.
        views: Whose best scores shift a query.
        places: Only the best so many of each query are fitted to: what users see.
        decay: Weight of the squared coefficients, against a sum over candidates.

    Returns:
        Without thresholds.
    """
    logarithms, given = _inputs(scores, candidates, views)
    order = np.lexsort((candidates.rows, -scores, candidates.queries))
    starts = np.searchsorted(candidates.queries, np.arange(candidates.n_queries))
    seen = order[np.arange(len(order)) - starts[candidates.queries] < places]
    inputs = np.column_stack([logarithms, given])[seen]
    positive = positive[seen]
    weights = np.zeros(inputs.shape[1])
    weights[0] = 1.0
    ridge = np.full(len(weights), decay)
    for _ in range(NEWTON_STEPS):
        said = _sigmoid(inputs @ weights)
        slope = inputs.T @ (said - positive) + ridge * weights
        curve = (inputs * (said * (1 - said))[:, None]).T @ inputs + np.diag(ridge)
        change = np.linalg.solve(curve, slope)
        # A long first step can leave the curve's flat ends only slowly; none is that long.
        change *= min(1.0, 5.0 / max(1e-12, float(np.abs(change).max())))
        weights = weights - change
        if np.abs(change).max() < 1e-8:
            break
    return Calibration(views, max(float(weights[0]), 1e-3), weights[1:])


def with_thresholds(
    calibration: Calibration,
    top: TopK,
    truth: sp.csr_matrix,
    label_counts: NDArray[np.int64],
) -> Calibration:
    """The calibration with thresholds for the best micro-F1, overall and for each frequency bin.

    Args:
        calibration: What made the scores of ``top``.
        top: Predictions on validation, scores being probabilities.
        truth: (N, L) CSR.
        label_counts: (L,).

    Returns:
        A copy.
    """
    overall = best_threshold(top, truth)
    bins = frequency_bins(label_counts, GROUPS)
    of_label = np.asarray(bins)
    groups = []
    for group in range(GROUPS):
        own = np.append(of_label == group, False)  # the last for empty places
        scores = np.where(own[top.rows], top.scores, np.float32(-np.inf))
        mask = sp.diags((of_label == group).astype(np.float32))
        theirs = sp.csr_matrix(truth @ mask)
        theirs.eliminate_zeros()
        found = np.isfinite(scores).any() and theirs.nnz > 0
        groups.append(best_threshold(TopK(top.rows, scores), theirs) if found else overall)
    return Calibration(
        calibration.views, calibration.slope, calibration.shift, overall, tuple(groups)
    )


def calibration_error(
    probabilities: NDArray[Any], positive: NDArray[np.bool_], bins: int = 15
) -> float:
    """Expected calibration error: mean over predictions of |right - said| of their bin.

    Bins hold equally many predictions, so that rare high probabilities are not lost among many
    low ones.

    Args:
        probabilities: (P,).
        positive: (P,).
        bins: How many.

    Returns:
        In [0, 1]; 0 for no prediction.
    """
    if not len(probabilities):
        return 0.0
    order = np.argsort(probabilities, kind="stable")
    edges = np.linspace(0, len(order), min(bins, len(order)) + 1).astype(np.int64)
    gaps = np.add.reduceat((positive - probabilities)[order], edges[:-1])
    return float(np.abs(gaps).sum() / len(order))


def thresholds_of_labels(
    calibration: Calibration, label_counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(L,) the threshold of each label's frequency bin."""
    bins = frequency_bins(label_counts, len(calibration.group_thresholds))
    return np.array(calibration.group_thresholds)[bins]


def judge_sets(
    top: TopK,
    truth: sp.csr_matrix,
    calibration: Calibration,
    label_counts: NDArray[np.int64],
) -> dict[str, Any]:
    """How good probabilities and thresholds are on some queries, as JSON values.

    Args:
        top: Answers with probabilities.
        truth: (N, L) CSR.
        calibration: With its thresholds.
        label_counts: (L,) as the parts know them.

    Returns:
        Percent, but for thresholds and labels per query.
    """
    said = top.rows >= 0
    right = find_hits(top, truth).hits[said]
    own = thresholds_of_labels(calibration, label_counts)
    return {
        "expected_calibration_error": 100.0 * calibration_error(top.scores[said], right),
        "threshold": calibration.threshold,
        "auto": set_scores(top, truth, calibration.threshold),
        "group_thresholds": list(calibration.group_thresholds),
        "groups": set_scores(top, truth, own),
    }


def set_scores(
    top: TopK, truth: sp.csr_matrix, thresholds: NDArray[np.float64] | float
) -> dict[str, float]:
    """Micro-F1, macro-F1 and size of the sets of labels at or above a threshold, in percent.

    Args:
        top: Predictions.
        truth: (N, L) CSR.
        thresholds: One, or (L,) one for each label.

    Returns:
        Macro-F1 is over labels with a positive in the truth.
    """
    hits = find_hits(top, truth)
    limit = np.append(np.broadcast_to(thresholds, truth.shape[1]), np.inf)[top.rows]
    said = (top.scores >= limit) & (top.rows >= 0)
    right = hits.hits & said
    total = int(said.sum()) + len(hits.positives)
    n_labels = truth.shape[1]
    per_label = np.bincount(top.rows[said], minlength=n_labels)
    hit = np.bincount(top.rows[right], minlength=n_labels)
    judged = hits.labels_with_positives > 0
    f1 = 2.0 * hit[judged] / (per_label + hits.labels_with_positives)[judged]
    return {
        "micro_f1": 200.0 * int(right.sum()) / total if total else 0.0,
        "macro_f1": 100.0 * float(f1.mean()) if judged.any() else 0.0,
        "labels_per_query": float(said.sum(axis=1).mean()) if len(said) else 0.0,
    }


def _inputs(
    scores: NDArray[np.float64], candidates: Candidates, views: tuple[str, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    logarithms = log_shares(scores, candidates)
    entropy = -of_query(np.add, np.exp(logarithms) * logarithms, candidates)
    best = [
        of_query(np.maximum, candidates.scores[view].astype(np.float64), candidates)
        for view in views
    ]
    return logarithms, np.stack([np.ones(len(scores)), entropy, *best], axis=1)


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-np.clip(values, -60, 60)))
