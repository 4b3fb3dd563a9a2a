"""Probabilities that are as often right as they say, thresholds that are the best of all."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.answers.calibration import (
    Calibration,
    calibration_error,
    fit_calibration,
    judge_sets,
    set_scores,
    thresholds_of_labels,
    with_thresholds,
)
from umpteen.answers.candidates import Candidates, best_candidates
from umpteen.errors import RunError
from umpteen.metrics.bins import frequency_bins
from umpteen.metrics.threshold import micro_f1
from umpteen.types import TopK

COUNTS = np.array([50, 9, 8, 7, 3, 2, 2, 1, 1, 1])


def made(n=400, seed=0):
    """Candidates whose chance of being right is a logistic curve of a score and of the query."""
    rng = np.random.default_rng(seed)
    queries = np.repeat(np.arange(n), 10)
    rows = np.tile(np.arange(10), n)
    sure = np.repeat(rng.normal(size=n), 10).astype(np.float32)
    scores = rng.normal(size=10 * n) * 2
    chance = 1 / (1 + np.exp(-(scores - 1.5 + sure)))
    right = rng.random(10 * n) < chance
    return Candidates(queries, rows, {"dual": sure}, n), scores, right


def test_said_probabilities_are_as_often_right_and_keep_the_order():
    candidates, scores, right = made()
    fitted = fit_calibration(scores, candidates, right, ("dual",), places=10)
    fresh, new_scores, new_right = made(seed=1)
    said = fitted.probabilities(new_scores, fresh)
    assert calibration_error(said, new_right) < 0.03
    assert calibration_error(np.clip(said + 0.2, 0, 1), new_right) > 0.1
    by_score = best_candidates(new_scores, said, fresh, 10)
    by_chance = best_candidates(said, said, fresh, 10)
    np.testing.assert_array_equal(by_score.rows, by_chance.rows)


def test_the_fit_is_where_the_slope_is_zero():
    candidates, scores, right = made(n=50)
    fitted = fit_calibration(scores, candidates, right, ("dual",), places=10, decay=1e-9)
    said = fitted.probabilities(scores, candidates)
    # The slope of the constant and of the view's best: what is said adds up to what is right.
    assert (said - right).sum() == pytest.approx(0, abs=1e-4)
    assert ((said - right) * candidates.scores["dual"]).sum() == pytest.approx(0, abs=1e-4)


def test_the_error_is_a_mean_over_bins_of_equal_size():
    said = np.array([0.1, 0.2, 0.8, 0.9])
    right = np.array([False, True, True, True])
    assert calibration_error(said, right, bins=2) == pytest.approx((0.7 + 0.3) / 4)
    assert calibration_error(said, right, bins=4) == pytest.approx((0.1 + 0.8 + 0.2 + 0.1) / 4)
    assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0


def predictions():
    candidates, scores, right = made(n=40)
    said = 1 / (1 + np.exp(-scores))
    truth = sp.csr_matrix(
        (right.astype(np.float32), (candidates.queries, candidates.rows)), shape=(40, 10)
    )
    truth.eliminate_zeros()
    return best_candidates(scores, said, candidates, 10), truth


def test_thresholds_are_the_best_of_all():
    top, truth = predictions()
    plain = Calibration((), 1.0, np.zeros(2))
    found = with_thresholds(plain, top, truth, COUNTS)
    best = max(micro_f1(top, truth, float(t)) for t in top.scores.ravel())
    assert micro_f1(top, truth, found.threshold) == pytest.approx(best)
    bins = frequency_bins(COUNTS, 5)
    assert len(found.group_thresholds) == 5
    for group in range(5):
        own = bins[top.rows] == group
        scores = np.where(own, top.scores, -np.inf).astype(np.float32)
        theirs = sp.csr_matrix(truth.toarray() * (bins == group))
        of_group = TopK(top.rows, scores)
        values = [micro_f1(of_group, theirs, float(t)) for t in scores[own]]
        mine = micro_f1(of_group, theirs, found.group_thresholds[group])
        assert mine == pytest.approx(max(values, default=mine))


def test_set_scores_equal_a_count_by_hand():
    top, truth = predictions()
    limits = np.linspace(0.2, 0.8, 10)
    scores = set_scores(top, truth, limits)
    dense = truth.toarray() > 0
    said = np.zeros_like(dense)
    for query in range(40):
        for row, chance in zip(top.rows[query], top.scores[query], strict=True):
            said[query, row] = chance >= limits[row]
    hits = (said & dense).sum()
    assert scores["micro_f1"] == pytest.approx(200 * hits / (said.sum() + dense.sum()))
    f1 = 2 * (said & dense).sum(0) / np.maximum(said.sum(0) + dense.sum(0), 1)
    assert scores["macro_f1"] == pytest.approx(100 * f1[dense.any(0)].mean())
    assert scores["labels_per_query"] == pytest.approx(said.sum() / 40)
    whole = with_thresholds(Calibration((), 1.0, np.zeros(2)), top, truth, COUNTS)
    judged = judge_sets(top, truth, whole, COUNTS)
    assert judged["auto"] == set_scores(top, truth, whole.threshold)
    assert judged["groups"] == set_scores(top, truth, thresholds_of_labels(whole, COUNTS))


def test_a_calibration_survives_its_file_and_damage_is_a_sentence():
    candidates, scores, right = made(n=20)
    fitted = fit_calibration(scores, candidates, right, ("dual",))
    again = Calibration.from_json(fitted.as_json())
    np.testing.assert_array_equal(
        again.probabilities(scores, candidates), fitted.probabilities(scores, candidates)
    )
    with pytest.raises(RunError, match="fit it again"):
        Calibration.from_json({**fitted.as_json(), "shift": [1.0]})
