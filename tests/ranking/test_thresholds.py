"""Calibration error, thresholds and F1 equal counts by hand."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.metrics.bins import frequency_bins
from umpteen.metrics.hits import find_hits
from umpteen.ranking import thresholds
from umpteen.ranking.calibration import Calibration, n_inputs
from umpteen.ranking.thresholds import (
    GROUPS,
    calibration_error,
    f1_scores,
    set_metrics,
    thresholds_of_labels,
    with_thresholds,
)
from umpteen.types import TopK

COUNTS = np.array([50, 9, 8, 7, 3, 2, 2, 1, 1, 1])
PLAIN = Calibration(("dual",), 1.0, np.zeros(n_inputs(("dual",))))


def micro_f1(topk, truth, threshold):
    return f1_scores(topk, truth, threshold)["micro_f1"] / 100


def predictions(n=41):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(n, 10))
    truth = sp.csr_matrix((rng.random((n, 10)) < 1 / (1 + np.exp(-scores))).astype(np.float32))
    order = np.argsort(-scores, axis=1)
    said = np.take_along_axis(1 / (1 + np.exp(-scores)), order, axis=1).astype(np.float32)
    order[::3, 7:], said[::3, 7:] = -1, -np.inf
    return TopK(order, said), truth


def test_the_error_is_a_mean_over_bins_of_equal_size():
    said = np.array([0.1, 0.2, 0.8, 0.9])
    right = np.array([False, True, True, True])
    assert calibration_error(said, right, bins=2) == pytest.approx((0.7 + 0.3) / 4)
    assert calibration_error(said, right, bins=4) == pytest.approx((0.1 + 0.8 + 0.2 + 0.1) / 4)
    assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0


def test_thresholds_have_the_best_micro_f1(monkeypatch):
    monkeypatch.setattr(thresholds, "SHRINKAGE", 0.0)
    top, truth = predictions()
    found = with_thresholds(PLAIN, top, truth, COUNTS)
    finite = top.scores[np.isfinite(top.scores)]
    best = max(micro_f1(top, truth, float(t)) for t in finite)
    assert micro_f1(top, truth, found.threshold) == pytest.approx(best)
    bins = frequency_bins(COUNTS, GROUPS)
    for group in range(GROUPS):
        own = (np.append(bins, -1)[top.rows] == group) & np.isfinite(top.scores)
        scores = np.where(own, top.scores, -np.inf).astype(np.float32)
        theirs = sp.csr_matrix(truth.toarray() * (bins == group))
        values = [micro_f1(TopK(top.rows, scores), theirs, float(t)) for t in scores[own]]
        mine = micro_f1(TopK(top.rows, scores), theirs, found.group_thresholds[group])
        assert mine == pytest.approx(max(values, default=mine))
    assert found.slope == PLAIN.slope


def test_few_right_answers_keep_thresholds_near_the_prior(monkeypatch):
    top, truth = predictions()
    near = with_thresholds(PLAIN, top, truth, COUNTS)
    monkeypatch.setattr(thresholds, "SHRINKAGE", 0.0)
    best = with_thresholds(PLAIN, top, truth, COUNTS)
    n = int(find_hits(top, truth).hits.sum())
    assert near.threshold == pytest.approx((n * best.threshold + 50) / (n + 100))
    gaps = np.abs(np.array(near.group_thresholds) - near.threshold)
    assert (gaps <= np.abs(np.array(best.group_thresholds) - near.threshold) + 1e-9).all()


def test_nothing_right_or_nothing_predicted_keeps_the_threshold():
    top, truth = predictions()
    empty = TopK(np.full((41, 3), -1), np.full((41, 3), -np.inf, np.float32))
    for given, right in ((top, sp.csr_matrix(truth.shape, dtype=np.float32)), (empty, truth)):
        found = with_thresholds(PLAIN, given, right, COUNTS)
        assert found.threshold == 0.5
        assert found.group_thresholds == (0.5,) * GROUPS


def test_f1_scores_equal_a_count_by_hand():
    top, truth = predictions()
    limits = np.linspace(0.2, 0.8, 10)
    scores = f1_scores(top, truth, limits)
    dense = truth.toarray() > 0
    said = np.zeros_like(dense)
    for query in range(41):
        for row, chance in zip(top.rows[query], top.scores[query], strict=True):
            if row >= 0:
                said[query, row] = chance >= limits[row]
    hits = (said & dense).sum()
    assert scores["micro_f1"] == pytest.approx(200 * hits / (said.sum() + dense.sum()))
    f1 = 2 * (said & dense).sum(0) / np.maximum(said.sum(0) + dense.sum(0), 1)
    assert scores["macro_f1"] == pytest.approx(100 * f1[dense.any(0)].mean())
    assert scores["labels_per_query"] == pytest.approx(said.sum() / 41)


def test_set_metrics_collect_them_all():
    top, truth = predictions()
    whole = with_thresholds(PLAIN, top, truth, COUNTS)
    found = set_metrics(top, truth, whole, COUNTS)
    assert found["auto"] == f1_scores(top, truth, whole.threshold)
    assert found["groups"] == f1_scores(top, truth, thresholds_of_labels(whole, COUNTS))
    assert 0 < found["expected_calibration_error"] < 20
    assert thresholds_of_labels(PLAIN, COUNTS).tolist() == [0.5] * 10
