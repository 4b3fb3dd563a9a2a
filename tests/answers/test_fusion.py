"""The conditional logit: its optimum, what it learns, its shares, its file."""

import numpy as np
import pytest

from umpteen.answers.candidates import VIEWS, Candidates
from umpteen.answers.features import feature_parts, features, log_shares, of_query
from umpteen.answers.fusion import FusionModel, fit_fusion
from umpteen.errors import RunError

COUNTS = np.array([1, 2, 5, 9, 40, 3, 1, 7])


def made(n=60, seed=0):
    """Queries with six candidates: ``dual`` is right about frequent labels, ``words`` never."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([np.sort(rng.permutation(8)[:6]) for _ in range(n)])
    queries = np.repeat(np.arange(n), 6)
    scores = {view: rng.random(len(rows)).astype(np.float32) for view in VIEWS}
    positive = scores["dual"] > 0.75
    return Candidates(queries, rows, scores, n), positive


def objective(weights, given, positive, candidates, decay):
    total, n = 0.0, 0
    for query in range(candidates.n_queries):
        own = candidates.queries == query
        scores = given[own] @ weights
        right = positive[own]
        if right.any():
            wrong = np.exp(scores[~right]).sum()
            total -= np.log(np.exp(scores[right]) / (np.exp(scores[right]) + wrong)).mean()
            n += 1
    return total / n + decay * (weights**2).sum()


def test_the_fit_is_a_minimum_of_the_loss_written_as_a_loop():
    candidates, positive = made()
    model = fit_fusion(candidates, positive, ("dual", "votes"), COUNTS, decay=0.01)
    given = model.features(candidates, COUNTS)
    np.testing.assert_allclose(given.mean(axis=0), 0, atol=1e-9)
    best = objective(model.weights, given, positive, candidates, 0.01)
    for place in range(len(model.weights)):
        for step in (-0.02, 0.02):
            other = model.weights.copy()
            other[place] += step
            assert objective(other, given, positive, candidates, 0.01) > best - 1e-9


def test_queries_whose_candidates_are_all_right_teach_nothing():
    candidates, positive = made()
    told = positive.copy()
    told[:6] = True
    fitted = fit_fusion(candidates, told, ("dual",), COUNTS, decay=0.01)
    given, positive[:6] = fitted.features(candidates, COUNTS), False
    best = objective(fitted.weights, given, told, candidates, 0.0)
    assert np.isfinite(fitted.weights).all()
    counted = int(len(np.unique(candidates.queries[told])))
    without = objective(fitted.weights, given, positive, candidates, 0.0)
    assert best * counted == pytest.approx(without * (counted - 1))


def test_it_trusts_the_view_that_is_right():
    candidates, positive = made()
    model = fit_fusion(candidates, positive, tuple(VIEWS), COUNTS)
    fresh, right = made(seed=1)
    scores = model.scores(model.features(fresh, COUNTS))
    best = scores == of_query(np.maximum, scores, fresh)
    judged = of_query(np.add, right.astype(float), fresh) > 0
    assert right[best & judged].mean() > 0.9


def test_shares_add_up_to_what_sets_a_candidate_apart():
    candidates, positive = made()
    model = fit_fusion(candidates, positive, tuple(VIEWS), COUNTS)
    given = model.features(candidates, COUNTS)
    average = np.stack([of_query(np.add, column, candidates) / 6 for column in given.T], axis=1)
    shares = model.shares(given, average)
    assert set(shares) == {"dual", "classifier", "votes", "lexical", "frequency"}
    scores = model.scores(given)
    np.testing.assert_allclose(
        sum(shares.values()), scores - of_query(np.add, scores, candidates) / 6, atol=1e-9
    )


def test_features_have_an_owner_each_and_see_the_query():
    candidates, _ = made(n=3)
    for views in (("dual",), ("votes", "words"), tuple(VIEWS)):
        given = features(candidates, views, COUNTS)
        assert given.shape == (18, len(feature_parts(views)))
        assert np.isfinite(given).all()
    dual = features(candidates, ("dual",), COUNTS)
    for query in range(3):
        own = candidates.queries == query
        scores = candidates.scores["dual"][own].astype(np.float64)
        np.testing.assert_allclose(dual[own, 0], scores - scores.max(), atol=1e-12)
    frequency = np.log1p(COUNTS[candidates.rows])
    np.testing.assert_allclose(dual[:, -2], frequency)
    np.testing.assert_allclose(dual[:, 2], dual[:, 0] * frequency)


def test_labels_added_since_count_as_never_seen():
    candidates, _ = made(n=2)
    later = Candidates(candidates.queries, candidates.rows + 5, candidates.scores, 2)
    given = features(later, ("dual",), COUNTS)
    assert (given[later.rows >= 8, -2] == 0).all()


def test_shares_of_a_query_add_up_to_one():
    candidates, _ = made(n=4)
    scores = np.random.default_rng(2).normal(size=24) * 30
    total = of_query(np.add, np.exp(log_shares(scores, candidates)), candidates)
    np.testing.assert_allclose(total, 1)


def test_a_model_survives_its_file_and_damage_is_a_sentence():
    candidates, positive = made()
    model = fit_fusion(candidates, positive, ("dual", "classifier"), COUNTS)
    again = FusionModel.from_json(model.as_json())
    given = model.features(candidates, COUNTS)
    np.testing.assert_array_equal(again.scores(given), model.scores(given))
    assert again.parts == ("dual", "classifier")
    for damage in ({"weights": [1.0]}, {"views": ["nothing"]}, {"mean": "x"}):
        with pytest.raises(RunError, match="fit it again"):
            FusionModel.from_json({**model.as_json(), **damage})
