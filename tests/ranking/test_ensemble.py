"""The conditional logit: its minimum, its prior, its contributions, its JSON."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from umpteen.errors import RunError
from umpteen.ranking import ensemble_fitting
from umpteen.ranking.candidates import Candidates, take, top_k
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.ensemble_fitting import MonotoneWeights, fit_ensemble
from umpteen.ranking.features import matrix
from umpteen.ranking.prior import prior_weights
from umpteen.ranking.retriever_specs import scorers_of
from umpteen.ranking.solver import prior_ridge

from .samples import ALL, COUNTS, knowing, made, permuted


def objective(weights, given, candidates, positive, decay, center=0.0):
    """The loss as a loop over queries."""
    total, n = 0.0, 0
    for query in range(len(candidates)):
        own = candidates.seen[query].numpy()
        right = positive[query].numpy()[own]
        scores = given[query].numpy()[own] @ weights
        if right.any() and not right.all():
            wrong = np.exp(scores[~right]).sum()
            total -= np.log(np.exp(scores[right]) / (np.exp(scores[right]) + wrong)).mean()
            n += 1
    return total / n + decay * ((weights - center) ** 2).sum()


def standardized(model, candidates):
    return (matrix(candidates, model.retrievers) - torch.from_numpy(model.mean)) / torch.from_numpy(
        model.scale
    )


def slow_scores(model, candidates):
    return (standardized(model, candidates) @ torch.from_numpy(model.weights)).numpy()


@pytest.mark.parametrize("retrievers", [("dual", "knn"), ALL])
def test_the_fit_is_a_minimum_of_the_loss_written_as_a_loop(retrievers):
    candidates, positive = made()
    model = fit_ensemble(candidates, positive, retrievers, decay=0.01)
    assert model.converged
    given = standardized(model, candidates)
    best = objective(model.weights, given, candidates, positive, 0.01)
    monotone = MonotoneWeights(retrievers, model.scale, int(candidates.counts.max()))
    found = monotone.nearest(model.weights)
    lower = [-np.inf if low is None else low for low in monotone.lower]
    np.testing.assert_allclose(monotone.weights(found), model.weights, atol=1e-12)
    for place in range(len(found)):
        for step in (-0.02, 0.02):
            other = found.copy()
            other[place] = max(found[place] + step, lower[place])
            there = monotone.weights(other)
            assert objective(there, given, candidates, positive, 0.01) > best - 1e-9


@pytest.mark.parametrize("retriever", ALL)
@pytest.mark.parametrize("n", [24, 300])
def test_more_evidence_of_any_retriever_never_lowers_a_label(retriever, n):
    candidates, positive = made(n=n, counts=np.where(COUNTS < 2, 0, COUNTS))
    # This retriever is high where labels are wrong, and the more so for frequent labels.
    misled = candidates.scores[retriever] * (~positive) * (1 + candidates.counts / 4)
    candidates = replace(candidates, scores={**candidates.scores, retriever: misled.float()})
    prior = prior_weights(ALL)
    model = fit_ensemble(candidates, positive, ALL, prior=prior, max_count=50)
    assert model.converged
    counts = candidates.counts.clone()
    counts[:, 0] = 50  # more texts than any label of the fit has
    before = model.scores(replace(candidates, counts=counts), torch.float64)
    for place in range(candidates.rows.shape[1]):
        own = misled.double().clone()
        own[:, place] = own[:, place].abs() + 0.3
        more = replace(candidates, scores={**candidates.scores, retriever: own}, counts=counts)
        after = model.scores(more, torch.float64)
        valid = candidates.valid[:, place]
        others = torch.arange(candidates.rows.shape[1]) != place
        rise = (after - before)[valid]
        assert (rise[:, place] >= -1e-9).all()
        most = torch.where(candidates.valid[valid][:, others], rise[:, others], -torch.inf)
        assert (most <= rise[:, place : place + 1] + 1e-9).all()  # nor against the others


def test_the_gradient_is_that_of_the_loss():
    candidates, positive = made(n=17)
    rng = np.random.default_rng(0)
    own = candidates.seen
    inputs = torch.from_numpy(rng.normal(size=(17, 11, 3))) * own[:, :, None]
    loss = ensemble_fitting.ConditionalLogit(
        inputs, positive & own, ~positive & own, np.array([1.0, 0.0, 2.0]), 0.3
    )
    at = rng.normal(size=3)
    value, gradient = loss(at)
    for place in range(3):
        step = np.zeros(3)
        step[place] = 1e-6
        slope = (loss(at + step)[0] - loss(at - step)[0]) / 2e-6
        assert gradient[place] == pytest.approx(slope, abs=1e-7)
    assert np.isfinite(value)


def test_scores_equal_weights_times_features():
    candidates, positive = made()
    model = fit_ensemble(candidates, positive, ALL)
    fresh, _ = made(n=13, seed=5)
    expected = slow_scores(model, fresh)
    own = fresh.valid
    np.testing.assert_allclose(
        model.scores(fresh, torch.float64)[own], expected[own.numpy()], atol=1e-9
    )
    single = model.scores(fresh)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single[own], expected[own.numpy()], atol=2e-4)
    assert (single[~own] == -torch.inf).all()


def test_queries_without_wrong_or_right_candidates_change_nothing():
    candidates, positive = made()
    more, right = made(n=4, seed=9, full=True)
    right[:2], right[2:] = True, False
    joined = Candidates(
        torch.cat([candidates.rows, more.rows]),
        {n: torch.cat([v, more.scores[n]]) for n, v in candidates.scores.items()},
        torch.cat([candidates.counts, more.counts]),
    )
    plain = fit_ensemble(candidates, positive, ALL)
    again = fit_ensemble(joined, torch.cat([positive, right]), ALL)
    np.testing.assert_allclose(again.weights, plain.weights, atol=1e-9)


def test_it_ranks_by_the_retriever_that_is_right():
    candidates, positive = made(n=200)
    model = fit_ensemble(candidates, positive, ALL, prior=prior_weights(ALL))
    fresh, right = made(n=100, seed=1)
    best = top_k(model.scores(fresh), fresh.rows, 1)
    judged = right.any(dim=1)
    assert take(right.long(), best, 0)[judged].float().mean() > 0.8


def test_the_prior_is_kept_without_queries_and_fades_with_many():
    candidates, positive = made(n=600)
    prior = prior_weights(ALL)
    assert fit_ensemble(candidates, torch.zeros_like(positive), ALL, prior=prior) is prior

    def function(model):
        return (model.weights / model.scale)[:3]

    alone = function(fit_ensemble(candidates, positive, ALL))
    gaps = []
    for n in (2, 30, 600):
        few = candidates.select(torch.arange(n))
        model = fit_ensemble(few, positive[:n], ALL, prior=prior)
        assert model.converged
        gaps.append(np.abs(function(model) - function(prior)).sum())
    assert gaps == sorted(gaps)
    assert gaps[0] < 0.3 * gaps[-1]
    near = function(fit_ensemble(candidates, positive, ALL, prior=prior))
    assert np.abs(near - alone).sum() < np.abs(near - function(prior)).sum()


def test_the_ridge_pulls_to_the_prior():
    candidates, positive = made(n=40)
    prior = prior_weights(ALL)
    model = fit_ensemble(candidates, positive, ALL, prior=prior)
    center = prior.weights / prior.scale * model.scale
    usable = (positive & candidates.seen).any(1) & (~positive & candidates.seen).any(1)
    decay = ensemble_fitting.DECAY + prior_ridge(int(usable.sum()))
    given = standardized(model, candidates)
    best = objective(model.weights, given, candidates, positive, decay, center)
    for place in range(0, len(center), 3):
        other = model.weights.copy()
        other[place] += 0.02  # stays within the bounds of monotone weights
        assert objective(other, given, candidates, positive, decay, center) > best - 1e-9
    assert best <= objective(center, given, candidates, positive, decay, center)


@pytest.mark.parametrize("retrievers", [("dual",), ("knn", "lexical_knn"), ALL])
def test_the_prior_alone_ranks_well(retrievers):
    fresh, right = knowing(*made(n=200, seed=2))
    best = top_k(prior_weights(retrievers).scores(fresh), fresh.rows, 1)
    judged = right.any(dim=1)
    assert take(right.long(), best, 0)[judged].float().mean() > 0.6


def test_contributions_add_up_to_the_difference_from_the_mean():
    candidates, positive = made(counts=np.where(np.arange(len(COUNTS)) < 9, 0, COUNTS))
    model = fit_ensemble(candidates, positive, ALL, prior=prior_weights(ALL))
    split = model.contributions(candidates, torch.float64)
    assert set(split) == {*scorers_of(ALL), "frequency"}
    scores = model.scores(candidates, torch.float64)
    for query in range(len(candidates)):
        own = candidates.valid[query]
        total = sum(values[query][own] for values in split.values())
        if own.any():
            expected = scores[query][own] - scores[query][own].mean()
            np.testing.assert_allclose(total, expected, atol=1e-9)
        assert all((values[query][~own] == 0).all() for values in split.values())


def test_factors_scale_the_part_of_each_scorer():
    candidates, positive = made()
    counts = torch.where(torch.arange(candidates.counts.shape[1]) % 3 == 0, 0, candidates.counts)
    candidates = replace(candidates, counts=counts)
    model = replace(fit_ensemble(candidates, positive, ALL), unseen=prior_weights(ALL).unseen)
    parts = model.parts(candidates, torch.float64)
    factors = {name: 0.25 * (place + 1) for place, name in enumerate(parts)}
    wanted = sum(factors[name] * part for name, part in parts.items())
    found = model.scaled(factors).scores(candidates, torch.float64)
    valid = candidates.valid
    assert bool((valid & ~candidates.seen).any())
    np.testing.assert_allclose(found[valid], wanted[valid], atol=1e-9)


def test_order_of_queries_and_labels_does_not_matter():
    candidates, positive = made()
    plain = fit_ensemble(candidates, positive, ALL)
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(candidates)))
    again = fit_ensemble(candidates.select(shuffled), positive[shuffled], ALL)
    np.testing.assert_allclose(again.weights, plain.weights, atol=1e-5)
    other, places = permuted(candidates, np.random.default_rng(1).permutation(len(COUNTS)))
    renamed = fit_ensemble(other, positive.gather(1, places), ALL)
    np.testing.assert_allclose(renamed.weights, plain.weights, atol=1e-5)


def test_many_queries_are_thinned_out(monkeypatch):
    candidates, positive = made(n=100)
    monkeypatch.setattr(ensemble_fitting, "MAX_QUERIES", 37)
    model = fit_ensemble(candidates, positive, ("dual",))
    usable = (positive & candidates.seen).any(1) & (~positive & candidates.seen).any(1)
    chosen = usable.nonzero()[:, 0]
    chosen = chosen[torch.linspace(0, len(chosen) - 1, 37, dtype=torch.float64).long()]
    monkeypatch.undo()
    expected = fit_ensemble(candidates.select(chosen), positive[chosen], ("dual",))
    np.testing.assert_array_equal(model.weights, expected.weights)


def test_weights_survive_json_and_damage_is_reported():
    candidates, positive = made()
    for model in (
        fit_ensemble(candidates, positive, ("dual", "classifier")),
        prior_weights(ALL),
    ):
        again = EnsembleWeights.from_json(model.as_json())
        assert torch.equal(again.scores(candidates), model.scores(candidates))
        assert again.scorers == model.scorers
        for damage in (
            {"weights": [1.0]},
            {"retrievers": ["nothing"]},
            {"mean": "x"},
            {"scale": [float("nan")] * len(model.scale)},
            {"unseen": {}},
        ):
            with pytest.raises(RunError, match="fit the ensemble again"):
                EnsembleWeights.from_json({**model.as_json(), **damage})
