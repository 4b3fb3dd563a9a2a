"""Labels without training texts: how their weights are fitted, and that no other score moves."""

import numpy as np
import pytest
import torch

from umpteen.errors import RunError
from umpteen.ranking.candidates import Candidates, take, top_k
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.ensemble_fitting import fit_ensemble, fit_unseen
from umpteen.ranking.features import feature_owners, matrix
from umpteen.ranking.prior import prior_weights
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS
from umpteen.ranking.unseen_labels import (
    ENOUGH_POSITIVES,
    UnseenWeights,
    fit_unseen_weights,
    hidden_labels,
    hide,
    text_feature_owners,
    text_matrix,
)

from .samples import ALL, COUNTS, N_LABELS, made

VOTING = tuple(name for name in ALL if RETRIEVER_SPECS[name].kind == "votes")
SOME = np.where(np.arange(N_LABELS) < 6, 0, COUNTS)


def fitted(retrievers=ALL, counts=COUNTS, n=300):
    candidates, positive = made(n=n, k=10, full=True, counts=counts)
    texts = {"lexical_ranker": candidates.scores["lexical_ranker"]}
    plain = fit_ensemble(candidates, positive, retrievers)
    return plain, fit_unseen(plain, candidates, positive, texts, seed=0)


def slow_scores(model, candidates):
    """Scores by the definition: seen labels by all features, unseen ones by texts and votes."""
    raw = matrix(candidates, model.retrievers).numpy()
    text = text_matrix(candidates, model.retrievers).numpy()
    owners = feature_owners(model.retrievers)
    seen = ((raw - model.mean) / model.scale) @ model.weights
    unseen = ((text - model.unseen.mean) / model.unseen.scale) @ model.unseen.weights
    for name in VOTING:
        places = [place for place, owner in enumerate(owners) if owner == name]
        none = np.array([np.log(0.003), 0, 0, 0])
        if places:
            unseen += (raw[:, :, places] - none) / model.scale[places] @ model.weights[places]
    return np.where(candidates.counts.numpy() > 0, seen, unseen)


@pytest.mark.parametrize("retrievers", [("dual",), ("classifier", "knn"), ALL])
def test_scores_follow_the_definition(retrievers):
    _, model = fitted(retrievers)
    fresh, _ = made(n=21, seed=1, counts=SOME)
    own = fresh.valid
    expected = slow_scores(model, fresh)[own.numpy()]
    np.testing.assert_allclose(model.scores(fresh, torch.float64)[own], expected, atol=1e-9)
    split = model.contributions(fresh, torch.float64)
    scores = model.scores(fresh, torch.float64)
    total = sum(split.values())
    for query in range(21):
        own = fresh.valid[query]
        if own.any():
            gap = scores[query][own] - scores[query][own].mean()
            np.testing.assert_allclose(total[query][own], gap, atol=1e-9)


def test_seen_labels_keep_their_scores():
    plain, model = fitted()
    fresh, _ = made(n=20, seed=1)
    assert torch.equal(model.scores(fresh)[fresh.seen], plain.scores(fresh)[fresh.seen])


def test_hidden_labels_are_found():
    plain, model = fitted()
    fresh, right = made(n=300, k=10, seed=1, full=True)
    new = (fresh.rows < 6) & fresh.valid
    shown = hide(fresh, new, {})
    found = []
    for each in (plain, model):
        best = top_k(each.scores(shown), fresh.rows, 1)
        found.append(int(take((right & new).long(), best, 0).sum()))
    assert found[1] > 1.5 * found[0]
    none_right = ~(right & new).any(dim=1)
    best = top_k(model.scores(shown), fresh.rows, 1)
    assert int(take(new.long(), best, 0)[none_right].sum()) < 0.1 * 300


def test_votes_for_an_unseen_label_raise_it():
    _, model = fitted()
    fresh, _ = made(n=5, k=10, seed=2, full=True, counts=0 * COUNTS)
    silent = hide(fresh, fresh.valid, {})
    more = model.scores(fresh, torch.float64) - model.scores(silent, torch.float64)
    votes = torch.stack([fresh.scores[name] > 0 for name in VOTING])
    assert (more[votes.all(dim=0)] > 0).all()
    np.testing.assert_allclose(more[~votes.any(dim=0)], 0.0, atol=1e-9)
    assert votes.all(dim=0).any()
    assert not votes.any(dim=0).all()


def test_unseen_labels_that_cannot_be_right_take_no_part():
    candidates, positive = made(n=300, k=10, full=True, counts=SOME)
    never = positive & candidates.seen
    base = fit_ensemble(candidates, never, ALL)
    model = fit_unseen(base, candidates, never, {}, seed=0)
    known = fit_unseen(base, candidates, positive, {}, seed=0)
    assert model.unseen.weights[-1] > known.unseen.weights[-1] - 0.5


def test_the_fit_is_a_minimum_of_the_loss_written_as_a_loop():
    rng = np.random.default_rng(0)
    given = np.concatenate([rng.normal(size=(30, 7, 3)), np.ones((30, 7, 1))], axis=2)
    seen = rng.normal(size=(30, 7))
    hidden = rng.random((30, 7)) < 0.3
    hidden[0] = True  # a query without any seen label
    valid = rng.random((30, 7)) < 0.9
    hidden &= valid
    positive = (rng.random((30, 7)) < 1 / (1 + np.exp(3 - 2 * given[:, :, 0]))) & valid
    weights = fit_unseen_weights(
        torch.from_numpy(given[hidden]),
        *(torch.from_numpy(each) for each in (seen, hidden, positive, valid)),
        decay=0.01,
    )
    assert weights.converged

    def loss(values):
        own = (given - weights.mean) / weights.scale @ values
        scores = np.where(hidden, own, seen)
        total, judged = 0.0, 0
        for query in range(30):
            right, wrong = positive[query], valid[query] & ~positive[query]
            if right.any():
                judged += 1
                power = np.exp(scores[query][right])
                total -= np.log(power / (power + np.exp(scores[query][wrong]).sum())).mean()
        return total / judged + 0.01 * (values**2).sum()

    best = loss(weights.weights)
    assert (weights.weights[:-1] >= 0).all()
    assert weights.weights[0] > 0.3
    for place in range(4):
        for step in (-0.02, 0.02):
            other = weights.weights.copy()
            other[place] += step
            if other[place] >= 0 or place == 3:
                assert loss(other) > best - 1e-7


def test_the_prior_is_kept_where_no_label_can_be_hidden():
    candidates, positive = made(n=4)
    prior = prior_weights(ALL)
    none = candidates.select(torch.zeros(4, dtype=torch.bool))
    assert fit_unseen(prior, none, positive[:0], {}, seed=0) is prior


def test_only_rare_labels_stand_for_new_ones():
    candidates, positive = made(n=300, k=10, full=True)
    common = candidates.counts >= 6
    # Frequent labels are right on half of the texts, rare ones as often as before.
    positive = positive | (
        common & torch.from_numpy(np.random.default_rng(1).random((300, 10)) < 0.5)
    )
    base = fit_ensemble(candidates, positive, ALL)
    limits = (None, int(candidates.counts.max()), 5)
    all_labels, same, rare = (
        fit_unseen(base, candidates, positive, {}, seed=0, max_count=limit).unseen
        for limit in limits
    )
    np.testing.assert_array_equal(same.weights, all_labels.weights)
    assert rare.weights[-1] < all_labels.weights[-1] - 1.0


def test_the_prior_is_kept_where_no_hidden_label_is_right():
    candidates, positive = made(n=50, k=10, full=True)
    common = positive & (candidates.counts >= 6)
    prior = prior_weights(ALL)
    assert fit_unseen(prior, candidates, common, {}, seed=0, max_count=5) is prior


def test_few_queries_stay_near_the_prior():
    candidates, positive = made(n=2, k=10, full=True)
    prior = prior_weights(ALL)
    few = fit_unseen(prior, candidates, positive, {}, seed=0).unseen
    raw, before = few.weights / few.scale, prior.unseen.weights / prior.unseen.scale
    assert np.abs(raw - before)[:-1].max() < 0.5 * np.abs(before).max()


def test_labels_are_hidden_in_tenths_until_there_are_enough():
    rows = torch.arange(N_LABELS)[None].repeat(2, 1)
    few = hidden_labels(rows, 12, seed=0)
    assert len(few) == 10
    assert torch.equal(sum(mask.long() for mask in few), torch.ones_like(rows))
    assert torch.equal(few[0][0], few[0][1])
    assert len(hidden_labels(rows, 10 * ENOUGH_POSITIVES, seed=0)) == 1
    assert len(hidden_labels(rows, 5 * ENOUGH_POSITIVES, seed=0)) == 2
    padded = torch.cat([rows, torch.full((2, 3), -1)], dim=1)
    assert not any(mask[:, -3:].any() for mask in hidden_labels(padded, 12, seed=0))


def test_hidden_labels_have_text_scores_and_no_votes():
    candidates, _ = made(n=5, full=True)
    hidden = candidates.rows % 2 == 0
    texts = torch.full(candidates.rows.shape, 7.0)
    shown = hide(candidates, hidden, {"lexical_ranker": texts})
    assert (shown.counts[hidden] == 0).all()
    assert (shown.scores["lexical_ranker"][hidden] == 7).all()
    for name in ("knn", "lexical_knn", "one_vs_rest"):
        assert (shown.scores[name][hidden] == 0).all()
    for name in ALL:
        assert torch.equal(shown.scores[name][~hidden], candidates.scores[name][~hidden])
    assert torch.equal(shown.scores["dual"], candidates.scores["dual"])


@pytest.mark.parametrize("retrievers", [("dual",), ("classifier", "knn"), ("lexical_ranker",), ALL])
def test_every_text_feature_has_an_owner(retrievers):
    candidates, _ = made(n=3)
    found = text_matrix(candidates, retrievers)
    assert found.shape[2] == len(text_feature_owners(retrievers))
    assert (found[~candidates.valid] == 0).all()


def test_weights_survive_json_and_damage_is_reported():
    _, model = fitted()
    value = model.as_json()
    again = EnsembleWeights.from_json(value)
    np.testing.assert_array_equal(again.unseen.weights, model.unseen.weights)
    assert again.unseen.converged
    for damage in ({"weights": [1.0]}, {}, [], 3):
        with pytest.raises(RunError, match="fit the ensemble again"):
            EnsembleWeights.from_json({**value, "unseen": damage})
    with pytest.raises(ValueError, match="finite"):
        UnseenWeights.from_json({"mean": [0], "scale": [1], "weights": [np.inf]}, 1)


def test_rows_added_after_training_are_unseen():
    _, model = fitted()
    fresh, _ = made(n=5, seed=2, counts=SOME)
    later = Candidates(
        torch.where((fresh.rows >= 0) & (fresh.counts == 0), fresh.rows + 1000, fresh.rows),
        fresh.scores,
        fresh.counts,
    )
    assert torch.equal(model.scores(later), model.scores(fresh))
