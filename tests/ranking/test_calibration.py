"""Calibration: converged on any scores, monotone, as often right as the probabilities say."""

import numpy as np
import pytest
import torch

from umpteen.errors import RunError
from umpteen.ranking.calibration import Calibration, calibration_inputs, fit_calibration
from umpteen.ranking.candidates import Candidates, top_k
from umpteen.ranking.prior import prior_calibration
from umpteen.ranking.solver import prior_ridge
from umpteen.ranking.thresholds import calibration_error

from .samples import permuted


def logistic(n=400, k=10, seed=0):
    """Candidates whose chance is a logistic curve of the score and of the query."""
    rng = np.random.default_rng(seed)
    sure = np.repeat(rng.normal(size=(n, 1)), k, axis=1)
    scores = 2 * rng.normal(size=(n, k))
    right = rng.random((n, k)) < 1 / (1 + np.exp(-(scores - 1.5 + sure)))
    return wrapped(sure), torch.from_numpy(scores), torch.from_numpy(right)


def dense(n=100, k=60, spread=6.0, labels=6, seed=0):
    """Queries with many labels and widely spread scores.

    Newton's method without a line search alternates between two points on them.
    """
    rng = np.random.default_rng(seed)
    right = np.argsort(rng.random((n, k)), axis=1) < labels
    scores = np.where(right, spread, -spread) + rng.normal(size=(n, k)) * spread / 3
    return wrapped(rng.random((n, k))), torch.from_numpy(scores), torch.from_numpy(right)


def wrapped(dual):
    n, k = dual.shape
    rows = torch.arange(k).repeat(n, 1)
    given = {"dual": torch.from_numpy(dual.astype(np.float32))}
    return Candidates(rows, given, torch.ones(n, k, dtype=torch.int64))


def total_loss(calibration, scores, candidates, positive, prior, places=20, decay=1.0):
    """The loss of the fit as a loop over queries."""
    logs, given = calibration_inputs(scores.double(), candidates, calibration.retrievers)
    total, seen = 0.0, []
    first = top_k(scores.double(), candidates.rows, places)
    for query in range(len(candidates)):
        for place in first[query].tolist():
            if place >= 0:
                seen.append(given[query].numpy())
                shift = float(given[query].numpy() @ calibration.shift)
                logit = calibration.slope * float(logs[query, place]) + shift
                sign = 1 if positive[query, place] else -1
                total += np.logaddexp(0.0, -sign * logit)
    gap = np.array([calibration.slope, *calibration.shift])
    gap = gap - np.array([prior.slope, *prior.shift])
    queries = int((first >= 0).any(dim=1).sum())
    further = np.array([30, 3, *100 * np.mean(np.square(seen), axis=0)[1:]])
    return total + 0.5 * (decay + prior_ridge(queries) * further) @ gap**2


PRIOR = prior_calibration(("dual",))


def test_probabilities_are_as_often_right_as_they_say():
    candidates, scores, right = logistic()
    fitted = fit_calibration(scores, candidates, right, PRIOR, places=10)
    assert fitted.converged
    fresh, new_scores, new_right = logistic(seed=1)
    said = fitted.probabilities(new_scores, fresh).numpy().ravel()
    positive = new_right.numpy().ravel()
    assert calibration_error(said, positive) < 0.025
    assert calibration_error(np.clip(said + 0.2, 0, 1), positive) > 0.1


@pytest.mark.parametrize("spread", [4.0, 6.0, 10.0, 40.0])
def test_dense_data_converge(spread):
    """An undamped Newton iteration ends with slopes 1.33 and 0.001 in turn (spread 6)."""
    candidates, scores, right = dense(spread=spread)
    fitted = fit_calibration(scores, candidates, right, PRIOR)
    assert fitted.converged
    best = total_loss(fitted, scores, candidates, right, PRIOR)
    for place in range(1 + len(fitted.shift)):
        for step in (-0.03, 0.03):
            values = np.array([fitted.slope, *fitted.shift])
            values[place] += step
            other = Calibration(("dual",), float(values[0]), values[1:])
            assert total_loss(other, scores, candidates, right, PRIOR) > best - 1e-6
    fresh, new_scores, new_right = dense(spread=spread, seed=1)
    said = fitted.probabilities(new_scores, fresh)
    first = top_k(new_scores, fresh.rows, 20)
    error = calibration_error(
        said.gather(1, first).numpy().ravel(), new_right.gather(1, first).numpy().ravel()
    )
    assert error < 0.025


CASES = ("separable", "constant", "negative", "positive", "huge", "tiny", "one query", "infinite")


def case(name):
    candidates, scores, right = logistic(n=60)
    if name == "separable":
        right = scores > 1.0
    elif name == "constant":
        scores = torch.zeros_like(scores)
    elif name == "negative":
        right = torch.zeros_like(right)
    elif name == "positive":
        right = torch.ones_like(right)
    elif name == "huge":
        scores = 1e6 * scores
    elif name == "tiny":
        scores = 1e-9 * scores
    elif name == "one query":
        candidates, scores, right = candidates.select(torch.arange(1)), scores[:1], right[:1]
    else:
        rows = candidates.rows.clone()
        rows[::2, 4:] = -1
        candidates = Candidates(rows, candidates.scores, candidates.counts)
        scores = torch.where(rows >= 0, scores, -torch.inf)
        right = right & (rows >= 0)
    return candidates, scores, right


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_scores_converge_to_finite_monotone_probabilities(name, dtype):
    candidates, scores, right = case(name)
    scores = scores.to(dtype)
    fitted = fit_calibration(scores, candidates, right, PRIOR)
    assert fitted.converged
    assert fitted.slope > 0
    assert np.isfinite([fitted.slope, *fitted.shift]).all()
    start = total_loss(PRIOR, scores, candidates, right, PRIOR)
    assert total_loss(fitted, scores, candidates, right, PRIOR) <= start + 1e-9
    said = fitted.probabilities(scores, candidates)
    assert torch.isfinite(said).all()
    assert ((said >= 0) & (said <= 1)).all()
    assert (said[~candidates.valid] == 0).all()
    for query in range(len(candidates)):
        own = candidates.valid[query]
        order = scores[query][own].argsort()
        assert (said[query][own][order].diff() >= 0).all()


@pytest.mark.parametrize("width", [7, 10, 33])
def test_equal_scores_have_equal_probabilities(width):
    """A vectorized sigmoid differs from the scalar one of the last places."""
    for slope in np.linspace(0.5, 2.0, 40):
        same = wrapped(np.ones((9, width)))
        calibration = Calibration(("dual",), slope, np.zeros(len(PRIOR.shift)))
        said = calibration.probabilities(torch.full((9, width), 1.7), same)
        assert len(said.unique()) == 1


def test_one_class_gives_probabilities_of_that_class():
    candidates, scores, right = logistic(n=300)
    wrong = fit_calibration(scores, candidates, torch.zeros_like(right), PRIOR)
    assert wrong.probabilities(scores, candidates).max() < 0.15
    all_right = fit_calibration(scores, candidates, torch.ones_like(right), PRIOR)
    assert all_right.probabilities(scores, candidates).min() > 0.6


def test_a_score_against_the_truth_keeps_its_order():
    candidates, scores, right = logistic()
    fitted = fit_calibration(-scores, candidates, right, PRIOR)
    assert fitted.slope > 0
    assert fitted.converged
    said = fitted.probabilities(-scores, candidates)
    assert abs(float(said.mean()) - float(right.float().mean())) < 0.02


def test_order_of_queries_and_labels_does_not_matter():
    candidates, scores, right = logistic(n=50)
    plain = fit_calibration(scores, candidates, right, PRIOR)
    order = torch.from_numpy(np.random.default_rng(0).permutation(50))
    again = fit_calibration(scores[order], candidates.select(order), right[order], PRIOR)
    assert again.slope == pytest.approx(plain.slope, abs=1e-4)
    np.testing.assert_allclose(again.shift, plain.shift, atol=1e-3)
    other, places = permuted(candidates, np.random.default_rng(1).permutation(10))
    renamed = fit_calibration(scores.gather(1, places), other, right.gather(1, places), PRIOR)
    np.testing.assert_allclose(renamed.shift, plain.shift, atol=1e-3)
    np.testing.assert_allclose(
        plain.probabilities(scores.gather(1, places), other),
        plain.probabilities(scores, candidates).gather(1, places),
        atol=1e-12,
    )


def test_a_query_alone_equals_the_batch():
    candidates, scores, right = case("infinite")
    fitted = fit_calibration(scores, candidates, right, PRIOR)
    whole = fitted.probabilities(scores, candidates)
    for query in range(7):
        own = torch.tensor([query])
        alone = fitted.probabilities(scores[own], candidates.select(own))
        np.testing.assert_allclose(alone, whole[own], atol=1e-12)


def test_the_prior_is_kept_without_queries_and_fades_with_many():
    candidates, scores, right = logistic(n=3000)
    none = candidates.select(torch.arange(0))
    assert fit_calibration(scores[:0], none, right[:0], PRIOR) is PRIOR
    other = Calibration(("dual",), 3.0, np.array([-4.0, 0.0, 2.0, 0.0, 1.0]))

    def gap(n):
        own = candidates.select(torch.arange(n))
        fits = [fit_calibration(scores[:n], own, right[:n], p) for p in (PRIOR, other)]
        left, right_ = (fit.probabilities(scores[:n], own) for fit in fits)
        return float((left - right_).abs().max())

    assert gap(1) > 0.05
    assert gap(3000) < 0.01


def test_the_prior_multiplies_odds_by_the_labels_of_a_text():
    candidates, scores, _ = logistic(n=5)
    one, six = (prior_calibration(("dual",), m).probabilities(scores, candidates) for m in (1, 6))
    np.testing.assert_allclose(six / (1 - six), 6 * one / (1 - one), rtol=1e-9)


def test_a_calibration_survives_json_and_damage_is_reported():
    candidates, scores, right = logistic(n=20)
    fitted = fit_calibration(scores, candidates, right, PRIOR)
    again = Calibration.from_json(fitted.as_json())
    assert torch.equal(
        again.probabilities(scores, candidates), fitted.probabilities(scores, candidates)
    )
    for damage in ({"shift": [1.0]}, {"slope": -1.0}, {"threshold": None}, {"slope": "nan"}):
        with pytest.raises(RunError, match="fit the ensemble again"):
            Calibration.from_json({**fitted.as_json(), **damage})


@pytest.mark.parametrize("n_labels", [2, 5, 12, 60])
def test_the_prior_is_sure_of_one_label_among_few_and_among_many(n_labels):
    rows = torch.arange(n_labels)[None]
    flat = {name: torch.zeros(1, n_labels) for name in ("dual", "knn")}
    candidates = Candidates(rows, flat, torch.ones(1, n_labels, dtype=torch.int64))
    sure = torch.zeros(1, n_labels)
    sure[0, 0] = 12.0
    found = prior_calibration(("dual", "knn")).probabilities(sure, candidates)[0]
    assert found[0] > 0.8
    assert (found[1:] < 0.1).all()
    unsure = prior_calibration(("dual", "knn")).probabilities(torch.zeros(1, n_labels), candidates)
    assert (unsure < 0.75).all()
