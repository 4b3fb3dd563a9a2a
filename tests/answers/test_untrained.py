"""Labels without training queries: how trust is fitted, that nothing else moves, the file."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.answers.candidates import VIEWS, Candidates
from umpteen.answers.features import features, of_query
from umpteen.answers.fusion import FusionModel, fit_fusion, with_trust
from umpteen.answers.untrained import (
    ENOUGH,
    fit_trust,
    hide,
    text_features,
    text_parts,
    turns,
    words_of_texts,
)
from umpteen.errors import RunError

N_LABELS, N = 40, 300
COUNTS = np.random.default_rng(3).integers(1, 9, N_LABELS)


def made(n=N, seed=0):
    """Ten candidates a query: ``dual`` knows the right ones roughly, votes better, words none."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([np.sort(rng.permutation(N_LABELS)[:10]) for _ in range(n)])
    positive = rng.random(len(rows)) < 0.15
    scores = {view: rng.random(len(rows)).astype(np.float32) for view in VIEWS}
    scores["dual"] = (0.3 * positive + 0.5 * scores["dual"]).astype(np.float32)
    for view in ("votes", "word_votes"):
        scores[view] = np.where(rng.random(len(rows)) < np.where(positive, 0.9, 0.2), 0.3, 0.0)
        scores[view] = scores[view].astype(np.float32)
    return Candidates(np.repeat(np.arange(n), 10), rows, scores, n), positive


def fitted(views=tuple(VIEWS), counts=COUNTS):
    candidates, positive = made()
    words = candidates.scores["words"]
    plain = fit_fusion(candidates, positive, views, counts)
    return plain, with_trust(plain, candidates, positive, words, counts, seed=0)


def first(model, candidates, counts):
    scores = model.scores(model.features(candidates, counts))
    return scores == of_query(np.maximum, scores, candidates)


def test_trained_labels_are_scored_as_ever():
    plain, model = fitted()
    fresh, _ = made(n=20, seed=1)
    expected = plain.scores(plain.features(fresh, COUNTS))
    np.testing.assert_allclose(model.scores(model.features(fresh, COUNTS)), expected, atol=1e-12)


def test_hidden_labels_are_found_where_silence_was_read_as_a_no():
    plain, model = fitted()
    fresh, right = made(seed=1)
    new = fresh.rows < 6
    seen = hide(fresh, new, fresh.scores["words"])
    counts = np.where(np.arange(N_LABELS) < 6, 0, COUNTS)
    of_new = of_query(np.add, (right & new).astype(float), fresh) > 0
    before, after = (first(m, seen, counts) & right & new & of_new for m in (plain, model))
    assert after.sum() > 2 * before.sum()
    others = of_query(np.add, (right & new).astype(float), fresh) == 0
    wrong = first(model, seen, counts) & new & others
    assert wrong.sum() < 0.1 * fresh.n_queries


def test_the_last_row_and_rows_beyond_the_counts_are_alike():
    _, model = fitted()
    fresh, _ = made(n=5, seed=2)
    counts = np.where(np.arange(N_LABELS) < 6, 0, COUNTS)
    later = Candidates(
        fresh.queries, np.where(fresh.rows < 6, fresh.rows + N_LABELS, fresh.rows), fresh.scores, 5
    )
    np.testing.assert_array_equal(model.features(later, COUNTS), model.features(fresh, counts))


def test_votes_of_texts_that_were_added_speak_for_a_label():
    _, model = fitted()
    fresh, _ = made(n=5, seed=2)
    counts = np.zeros(N_LABELS, np.int64)
    silent = hide(fresh, np.ones(len(fresh), bool), None)
    given = model.features(silent, counts)
    np.testing.assert_array_equal(given[:, : len(model.weights)], 0.0)
    voted = hide(fresh, np.zeros(len(fresh), bool), None)
    more = model.scores(model.features(voted, counts)) - model.scores(given)
    some = (fresh.scores["votes"] > 0) & (fresh.scores["word_votes"] > 0)
    none = (fresh.scores["votes"] == 0) & (fresh.scores["word_votes"] == 0)
    assert (more[some] > 0).all()
    np.testing.assert_allclose(more[none], 0.0, atol=1e-12)


def test_labels_that_can_never_be_right_teach_nothing():
    """Held-out queries leave each label a training query, so the others are wrong by the rule."""
    candidates, positive = made()
    counts = np.where(np.arange(N_LABELS) < 6, 0, COUNTS)
    never = positive & (counts[candidates.rows] > 0)
    words = candidates.scores["words"]
    base = fit_fusion(candidates, never, tuple(VIEWS), counts)
    model = with_trust(base, candidates, never, words, counts, seed=0)
    known = with_trust(base, candidates, positive, words, counts, seed=0)
    assert model.trust.weights[-1] > known.trust.weights[-1] - 0.5
    fresh, right = made(seed=1)
    new = counts[fresh.rows] == 0
    seen = hide(fresh, new, fresh.scores["words"])
    assert (first(model, seen, counts) & new & right).sum() > 10


def test_the_fit_is_a_minimum_of_the_loss_written_as_a_loop():
    rng = np.random.default_rng(0)
    asked = np.repeat(np.arange(30), 7)
    given = np.column_stack([rng.normal(size=(210, 3)), np.ones(210)])
    trained, hidden = rng.normal(size=210), rng.random(210) < 0.3
    hidden[:7] = True  # a query without any trained label
    positive = rng.random(210) < 1 / (1 + np.exp(3 - 2 * given[:, 0]))
    trust = fit_trust(given, trained, asked, hidden, positive, decay=0.01)

    def loss(weights):
        scores = np.where(hidden, (given - trust.mean) / trust.scale @ weights, trained)
        total, judged = 0.0, 0
        for query in range(30):
            own = asked == query
            if positive[own].any():
                judged += 1
                wrong = np.exp(scores[own & ~positive]).sum()
                right = np.exp(scores[own & positive])
                total -= np.log(right / (right + wrong)).mean()
        return total / judged + 0.01 * (weights**2).sum()

    best = loss(trust.weights)
    assert (trust.weights[:-1] >= 0).all()
    assert trust.weights[0] > 0.3
    for place in range(4):
        for step in (-0.02, 0.02):
            other = trust.weights.copy()
            other[place] += step
            if other[place] >= 0 or place == 3:
                assert loss(other) > best - 1e-7


def test_words_of_texts_equal_the_dense_product(monkeypatch):
    monkeypatch.setattr("umpteen.answers.untrained.PAIRS_AT_ONCE", 7)
    rng = np.random.default_rng(1)
    queries = sp.random(5, 13, 0.4, "csr", np.float32, rng)
    labels = sp.random(N_LABELS, 13, 0.4, "csr", np.float32, rng)
    candidates, _ = made(n=5)
    expected = 20 * (queries @ labels.T).toarray()[candidates.queries, candidates.rows]
    np.testing.assert_allclose(words_of_texts(queries, labels, candidates), expected, rtol=1e-5)


def test_labels_take_turns_until_enough_are_hidden():
    few = turns(N_LABELS, 12, seed=0)
    assert len(few) == 10
    np.testing.assert_array_equal(np.sum(few, axis=0), 1)
    assert len(turns(N_LABELS, 10 * ENOUGH, seed=0)) == 1
    assert len(turns(N_LABELS, 5 * ENOUGH, seed=0)) == 2


@pytest.mark.parametrize("views", [("dual",), ("classifier", "votes"), ("words",), tuple(VIEWS)])
def test_every_feature_has_an_owner_and_any_views_can_be_fitted(views):
    plain, model = fitted(views)
    fresh, _ = made(n=3, seed=4)
    assert text_features(fresh, views).shape == (30, len(text_parts(views)))
    given = model.features(fresh, np.zeros(N_LABELS, np.int64))
    average = np.stack([of_query(np.add, column, fresh) / 10 for column in given.T], axis=1)
    scores = model.scores(given)
    np.testing.assert_allclose(
        sum(model.shares(given, average).values()),
        scores - of_query(np.add, scores, fresh) / 10,
        atol=1e-9,
    )


def test_models_of_before_are_read_and_damage_is_a_sentence():
    plain, model = fitted()
    value = model.as_json()
    again = FusionModel.from_json(value)
    np.testing.assert_array_equal(again.trust.weights, model.trust.weights)
    del value["untrained"]
    old = FusionModel.from_json(value)
    assert old.trust is None
    fresh, _ = made(n=3, seed=4)
    counts = np.zeros(N_LABELS, np.int64)
    expected = (features(fresh, plain.views, counts) - plain.mean) / plain.scale @ plain.weights
    np.testing.assert_allclose(old.scores(old.features(fresh, counts)), expected)
    for damage in ({"weights": [1.0]}, {}, [], None):
        with pytest.raises(RunError, match="fit it again"):
            FusionModel.from_json({**value, "untrained": damage})


def test_without_a_label_to_hide_the_model_stays():
    candidates, positive = made(n=4)
    plain = fit_fusion(candidates, positive, ("dual",), COUNTS)
    nothing = candidates.of(np.zeros(4, bool))
    assert with_trust(plain, nothing, positive[:0], None, COUNTS, seed=0) is plain
