"""The choice of the tail boost equals its rule written as loops."""

import numpy as np
import pytest
import torch

from umpteen.metrics.propensity import inverse_propensities
from umpteen.ranking import tail_boost
from umpteen.ranking.candidates import top_k
from umpteen.ranking.tail_boost import (
    BOOSTS,
    MAX_LOSS,
    UNCERTAINTY,
    choose_tail_boost,
    expected_loss,
    log_inverse_propensities,
    within_reach,
)

from .samples import made as sample


def made(n=70, seed=0, k=12):
    """Queries with up to k candidates, some with none; rare labels are often right."""
    candidates, _ = sample(n=n, k=k, seed=seed)
    rng = np.random.default_rng(seed)
    rows = candidates.rows
    scores = torch.from_numpy(rng.normal(size=(n, k)).round(1))  # with ties
    rarity = torch.where(rows >= 0, (rows % 4) * 0.5 + 0.1, torch.nan).double()
    said = torch.sigmoid(scores)
    positive = torch.from_numpy(rng.random((n, k)) < said.numpy()) & (rows >= 0)
    scores = torch.where(rows >= 0, scores, -torch.inf)
    return scores, rows, rarity, said, positive


def slowly(scores, rows, rarity, said, positive, boosts, max_loss):
    """The rule as loops over boosts, depths and queries."""
    n = len(rows)
    scores, rarity, said, positive = (x.double().numpy() for x in (scores, rarity, said, positive))

    def sums(values, boost):
        table = np.zeros((3, n))
        for query in range(n):
            own = np.flatnonzero(rows[query].numpy() >= 0)
            total = scores[query] + boost * rarity[query]
            order = sorted(own, key=lambda c: (-total[c], rows[query, c]))
            for place, depth in enumerate((1, 3, 5)):
                table[place, query] = sum(values[query, c] for c in order[:depth])
        return table

    def change(values, boost):
        plain, now = sums(values, 0.0), sums(values, boost)
        return np.mean([(b - a) / a.sum() for a, b in zip(plain, now, strict=True)], axis=0)

    best, most = 0.0, 0.0
    for boost in boosts:
        expected, counted = -change(said, boost), -change(positive, boost)
        noise, doubt = n * counted.var(), (UNCERTAINTY * expected.sum()) ** 2
        weight = doubt / (doubt + noise) if doubt + noise else 0.0
        if (1 - weight) * expected.sum() + weight * counted.sum() > max_loss:
            break
        gain = change(positive * np.exp(rarity), boost).sum()
        if gain > most:
            best, most = boost, gain
    return best


@pytest.mark.parametrize(("seed", "max_loss"), [(0, 0.003), (1, 0.01), (2, 0.04), (3, 0.2)])
def test_the_boost_is_that_of_the_rule_written_as_loops(seed, max_loss, monkeypatch):
    monkeypatch.setattr(tail_boost, "MAX_LOSS", max_loss)
    monkeypatch.setattr(tail_boost, "BOOSTS", BOOSTS[::4])
    given = made(seed=seed)
    assert choose_tail_boost(*given) == slowly(*given, BOOSTS[::4], max_loss)


def test_a_larger_loss_allows_a_larger_boost(monkeypatch):
    given = made(n=200)
    chosen = []
    for max_loss in (0.0, MAX_LOSS, 0.03, 0.3):
        monkeypatch.setattr(tail_boost, "MAX_LOSS", max_loss)
        chosen.append(choose_tail_boost(*given))
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


@pytest.mark.parametrize("seed", range(3))
def test_candidates_out_of_reach_are_never_among_the_first(seed):
    scores, rows, rarity, *_ = made(seed=seed)
    for shift in (0.0, -3.0):  # only differences of rarity matter
        kept = within_reach(scores, rows, rarity + shift)
        assert not kept[rows >= 0].all()
        for boost in BOOSTS[::6]:
            first = top_k(scores + boost * (rarity + shift), rows, 5)
            taken = kept.gather(1, first.clamp_min(0))
            assert taken[first >= 0].all()


def only_rare_are_right(n, share):
    """One frequent and one rare candidate each; the rare one is right in a share of the queries."""
    rare = torch.arange(n) < share * n
    rows = torch.tensor([[0, 1]]).repeat(n, 1)
    scores = torch.tensor([[0.1, 0.0]]).repeat(n, 1)
    rarity = torch.tensor([[0.0, 1.0]]).repeat(n, 1)
    return scores, rows, rarity, torch.stack([~rare, rare], dim=1)


def chances(n, *pair):
    return torch.tensor([pair]).repeat(n, 1)


def test_probabilities_decide_where_counts_are_noise():
    scores, rows, rarity, positive = only_rare_are_right(60, 0.55)
    assert choose_tail_boost(scores, rows, rarity, chances(60, 0.5, 0.5), positive) > 0
    assert choose_tail_boost(scores, rows, rarity, chances(60, 0.7, 0.3), positive) == 0


def test_counts_decide_where_there_are_many():
    scores, rows, rarity, positive = only_rare_are_right(20_000, 0.6)
    assert choose_tail_boost(scores, rows, rarity, chances(20_000, 0.52, 0.48), positive) > 0


def test_no_boost_without_gain_or_with_few_queries():
    scores, rows, rarity, positive = only_rare_are_right(60, 0.0)
    even = chances(60, 0.5, 0.5)
    assert choose_tail_boost(scores, rows, rarity, even, positive) == 0
    assert choose_tail_boost(scores, rows, rarity, even, torch.zeros_like(positive)) == 0
    scores, rows, rarity, positive = only_rare_are_right(60, 1.0)
    assert choose_tail_boost(scores, rows, rarity, even, positive) > 0
    few = [each[:20] for each in (scores, rows, rarity, even, positive)]
    assert choose_tail_boost(*few) == 0
    empty = torch.full((60, 2), -1)
    assert choose_tail_boost(scores, empty, rarity, even, torch.zeros_like(positive)) == 0


def test_a_loss_lies_between_what_is_expected_and_what_was_counted():
    rng = np.random.default_rng(0)
    expected = rng.random(300) * 1e-5
    for spread in (0.0, 1e-6, 1e-4, 1e-2):
        noise = rng.normal(size=300) * spread
        counted = 3 * expected.mean() + noise - noise.mean()
        low, high = expected.sum(), counted.sum()
        assert low <= expected_loss(expected, counted) <= high
    assert expected_loss(expected, np.full(300, 1e-4)) == pytest.approx(0.03)
    assert expected_loss(np.zeros(300), np.zeros(300)) == 0.0


@pytest.mark.parametrize("n_train", [1, 2, 1000, 10**7])
def test_inverse_propensities_equal_those_of_the_metric(n_train):
    counts = np.array([[0, 1, 7], [100, 5, 10**6]])
    expected = np.log(inverse_propensities(counts, n_train, 0.55, 1.5))
    found = log_inverse_propensities(torch.from_numpy(counts), n_train, 0.55, 1.5)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    exact = log_inverse_propensities(torch.from_numpy(counts).double(), n_train, 0.55, 1.5)
    np.testing.assert_allclose(exact, expected, rtol=1e-12)
