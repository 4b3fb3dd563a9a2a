"""Micro-F1 of predictions above a score, and the score that makes it largest (on validation)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from umpteen.errors import DataError
from umpteen.metrics.hits import find_hits
from umpteen.types import TopK


def micro_f1(topk: TopK, truth: sp.csr_matrix, threshold: float) -> float:
    """Return F1 over all (query, label) pairs.

    Places with a score of at least the threshold count as predicted.

    Positives that are not among the K places count as missed, so a wider ``topk`` is a better
    estimate. Choose the threshold on validation, never on the data it is reported for.

    Args:
        topk: The predictions with their scores.
        truth: (N, L) CSR of positives.
        threshold: The lowest score that counts as predicted.

    Returns:
        2 hits / (predicted + positives), in [0, 1]; 0 where both are empty.
    """
    hits = find_hits(topk, truth)
    predicted = (topk.scores >= threshold) & (topk.scores > -np.inf)
    total = int(predicted.sum()) + len(hits.positives)
    return 2.0 * int((hits.hits & predicted).sum()) / total if total else 0.0


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
