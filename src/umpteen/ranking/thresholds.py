"""Thresholds on probabilities, and how good probabilities and thresholds are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import ConfigError, DataError
from umpteen.metrics.bins import frequency_bins
from umpteen.metrics.hits import find_hits
from umpteen.ranking.calibration import Calibration
from umpteen.ranking.explanations import Explanations
from umpteen.types import TopK

GROUPS = 5
"""Frequency groups of labels, each with its own threshold."""
MAX_CALIBRATION_ERROR = 5.0
"""Percentage points above which a warning is printed."""
SHRINKAGE = 100.0
"""Right answers at which a threshold is half way between the best one and its prior."""


def with_thresholds(
    calibration: Calibration, top: TopK, truth: sp.csr_matrix, label_counts: NDArray[np.int64]
) -> Calibration:
    """Choose the thresholds with the best micro-F1, overall and for each frequency group.

    With few right answers the overall threshold stays near that of the calibration, and the
    thresholds of groups near the overall one.

    Args:
        calibration: The one that computed the probabilities, with a prior threshold.
        top: Predictions on validation with probabilities.
        truth: (N, L) CSR.
        label_counts: (L,) training texts of each label.

    Returns:
        A copy of the calibration; unchanged where nothing was predicted or nothing is right.
    """
    if not np.isfinite(top.scores).any() or truth.nnz == 0:
        return replace(calibration, group_thresholds=(calibration.threshold,) * GROUPS)
    right = find_hits(top, truth).hits
    best = best_threshold(top, truth)
    overall = _shrunk(best, int(right.sum()), calibration.threshold)
    of_label = frequency_bins(label_counts, GROUPS)
    groups = []
    for group in range(GROUPS):
        own = np.append(of_label == group, False)[top.rows]  # the last for padding
        scores = np.where(own, top.scores, np.float32(-np.inf))
        mask = sp.diags((of_label == group).astype(np.float32))
        theirs = sp.csr_matrix(truth @ mask)
        theirs.eliminate_zeros()
        found = np.isfinite(scores).any() and theirs.nnz > 0
        best = best_threshold(TopK(top.rows, scores), theirs) if found else overall
        groups.append(_shrunk(best, int(right[own].sum()), overall))
    return replace(calibration, threshold=overall, group_thresholds=tuple(groups))


def _shrunk(best: float, n_right: int, toward: float) -> float:
    """Return a value between the two thresholds; more right answers move it to the best one."""
    return toward + (best - toward) * n_right / max(1.0, n_right + SHRINKAGE)


def calibration_error(
    probabilities: NDArray[Any], positive: NDArray[np.bool_], bins: int = 15
) -> float:
    """Return the expected calibration error over bins with equally many predictions.

    Args:
        probabilities: (P,).
        positive: (P,) which are right.
        bins: How many.

    Returns:
        In [0, 1]; 0 for no prediction.

    Example:
        >>> calibration_error(np.array([0.1, 0.9]), np.array([False, True]), bins=2)
        0.1
    """
    if not len(probabilities):
        return 0.0
    order = np.argsort(probabilities, kind="stable")
    edges = np.linspace(0, len(order), min(bins, len(order)) + 1).astype(np.int64)
    gaps = np.add.reduceat((positive - probabilities.astype(np.float64))[order], edges[:-1])
    return round(float(np.abs(gaps).sum() / len(order)), 12)


def thresholds_of_labels(
    calibration: Calibration, label_counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the (L,) threshold of each label's frequency group."""
    groups = calibration.group_thresholds or (calibration.threshold,)
    return np.array(groups)[frequency_bins(label_counts, len(groups))]


def at_least(top: TopK, threshold: float) -> TopK:
    """Return the predictions with at least this probability; the others become vacant places."""
    kept = top.scores >= np.float32(threshold)
    scores = np.where(kept, top.scores, np.float32(-np.inf))
    return replace(top, rows=np.where(kept, top.rows, -1), scores=scores, explanations=None)


def set_metrics(
    top: TopK, truth: sp.csr_matrix, calibration: Calibration, label_counts: NDArray[np.int64]
) -> dict[str, Any]:
    """Measure probabilities and thresholds on some queries.

    Args:
        top: Predictions with probabilities.
        truth: (N, L) CSR.
        calibration: With its thresholds.
        label_counts: (L,) training texts of each label.

    Returns:
        JSON values: percent, except thresholds and labels per query.
    """
    predicted = top.rows >= 0
    right = find_hits(top, truth).hits[predicted]
    own = thresholds_of_labels(calibration, label_counts)
    return {
        "expected_calibration_error": 100.0 * calibration_error(top.scores[predicted], right),
        "threshold": calibration.threshold,
        "auto": f1_scores(top, truth, calibration.threshold),
        "group_thresholds": list(calibration.group_thresholds),
        "groups": f1_scores(top, truth, own),
    }


def f1_scores(
    top: TopK, truth: sp.csr_matrix, thresholds: NDArray[np.float64] | float
) -> dict[str, float]:
    """Compute micro-F1, macro-F1 and the size of the label sets at or above a threshold.

    Args:
        top: Predictions.
        truth: (N, L) CSR.
        thresholds: One, or (L,) one for each label.

    Returns:
        Percent; macro-F1 is over labels with a positive in the truth.
    """
    hits = find_hits(top, truth)
    limit = np.append(np.broadcast_to(thresholds, truth.shape[1]), np.inf)[top.rows]
    chosen = (top.scores >= limit) & (top.rows >= 0)
    right = hits.hits & chosen
    total = int(chosen.sum()) + len(hits.positives)
    n_labels = truth.shape[1]
    per_label = np.bincount(top.rows[chosen], minlength=n_labels)
    hit = np.bincount(top.rows[right], minlength=n_labels)
    judged = hits.labels_with_positives > 0
    f1 = 2.0 * hit[judged] / (per_label + hits.labels_with_positives)[judged]
    return {
        "micro_f1": 200.0 * int(right.sum()) / total if total else 0.0,
        "macro_f1": 100.0 * float(f1.mean()) if judged.any() else 0.0,
        "labels_per_query": float(chosen.sum(axis=1).mean()) if len(chosen) else 0.0,
    }


def keep_above(top: TopK, limits: NDArray[np.float64]) -> TopK:
    """Return the labels whose scores reach the limit of their label."""
    kept = top.scores >= np.append(limits, np.inf)[top.rows].astype(np.float32)
    # Per-label limits can drop a label in the middle: what is kept moves to the front.
    order = np.argsort(~kept, axis=1, kind="stable")
    rows = np.take_along_axis(np.where(kept, top.rows, -1), order, 1)
    scores = np.take_along_axis(np.where(kept, top.scores, np.float32(-np.inf)), order, 1)
    explanations = top.explanations
    if isinstance(explanations, Explanations):
        explanations = explanations.reordered(order, kept.sum(axis=1))
    return TopK(rows, scores, top.labels, top.notes, explanations)


def require_threshold(threshold: float | str) -> None:
    """Raise if a threshold is no probability, ``auto`` or ``groups``."""
    number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if isinstance(threshold, str) or not number:
        if threshold not in ("auto", "groups"):
            raise ConfigError(f"threshold {threshold!r}: give a number from 0 to 1, auto or groups")
    elif not 0 <= threshold <= 1:
        raise ConfigError(f"threshold {threshold:g} is no probability; give 0 to 1")


def best_threshold(topk: TopK, truth: sp.csr_matrix) -> float:
    """Return the threshold that makes ``micro_f1`` largest on these predictions.

    One sort of all scores; predictions with equal scores are predicted together or not at all.
    Among equally good thresholds the highest is returned.

    Args:
        topk: Predictions on validation.
        truth: (N, L) CSR of their positives.

    Returns:
        One of the scores.

    Raises:
        DataError: If there is no prediction to choose from.
    """
    hits = find_hits(topk, truth)
    predicted = topk.scores > -np.inf
    scores, right = topk.scores[predicted], hits.hits[predicted]
    if not len(scores):
        raise DataError("no predictions to choose a threshold from; give at least one")
    order = np.argsort(-scores, kind="stable")
    scores = scores[order]
    f1 = 2.0 * np.cumsum(right[order]) / (np.arange(1, len(scores) + 1) + len(hits.positives))
    last_of_equals = np.append(scores[1:] != scores[:-1], True)
    candidates = np.flatnonzero(last_of_equals)
    return float(scores[candidates[np.argmax(f1[candidates])]])
