"""The rules of choice: which tilt, which parts."""

import numpy as np
import pytest

from umpteen.answers.candidates import Candidates, first_places
from umpteen.answers.choosing import (
    DOUBT,
    GIVEN_UP,
    METRICS,
    TILTS,
    better,
    chosen_way,
    loss,
    tilted,
    within_reach,
)


def made(n=70, seed=0, most=12):
    """Queries with up to ``most`` candidates, some with none; rare labels are often right."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, most + 1, n)
    queries = np.repeat(np.arange(n), sizes)
    rows = np.concatenate([np.sort(rng.permutation(30)[:size]) for size in sizes])
    scores = rng.normal(size=len(rows)).round(1)  # some are equal
    rarity = (rows % 4) * 0.5 + 0.1
    said = 1 / (1 + np.exp(-scores))
    positive = rng.random(len(rows)) < said
    return Candidates(queries, rows, {}, n), scores, rarity, said, positive


def slowly(candidates, scores, rarity, said, positive, given_up):
    """The rule as loops over tilts, depths and queries."""

    def sums(values, tilt):
        table = np.zeros((3, candidates.n_queries))
        for query in range(candidates.n_queries):
            own = np.flatnonzero(candidates.queries == query)
            order = sorted(own, key=lambda c: (-(scores[c] + tilt * rarity[c]), candidates.rows[c]))
            for place, depth in enumerate((1, 3, 5)):
                table[place, query] = sum(values[c] for c in order[:depth])
        return table

    def change(values, tilt):
        plain, now = sums(values, 0.0), sums(values, tilt)
        return np.mean([(b - a) / a.sum() for a, b in zip(plain, now, strict=True)], axis=0)

    best, most = 0.0, 0.0
    for tilt in TILTS:
        expected, counted = -change(said, tilt), -change(positive, tilt)
        chance, doubt = len(counted) * counted.var(), (DOUBT * expected.sum()) ** 2
        weight = doubt / (doubt + chance) if doubt + chance else 0.0
        if (1 - weight) * expected.sum() + weight * counted.sum() > given_up:
            break
        gain = change(positive * np.exp(rarity), tilt).sum()
        if gain > most:
            best, most = tilt, gain
    return best


@pytest.mark.parametrize(("seed", "given_up"), [(0, 0.003), (1, 0.01), (2, 0.04), (3, 0.2)])
def test_the_tilt_is_that_of_the_rule_written_as_loops(seed, given_up, monkeypatch):
    monkeypatch.setattr("umpteen.answers.choosing.GIVEN_UP", given_up)
    monkeypatch.setattr("umpteen.answers.choosing.TILTS", TILTS[::4])
    monkeypatch.setitem(slowly.__globals__, "TILTS", TILTS[::4])
    candidates, *given = made(seed=seed)
    assert tilted(given[0], candidates, *given[1:]) == slowly(candidates, *given, given_up)


def test_more_may_be_given_up_for_a_larger_tilt(monkeypatch):
    candidates, *given = made(n=200)
    chosen = []
    for given_up in (0.0, GIVEN_UP, 0.03, 0.3):
        monkeypatch.setattr("umpteen.answers.choosing.GIVEN_UP", given_up)
        chosen.append(tilted(given[0], candidates, *given[1:]))
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_out_of_reach_is_never_among_the_first(seed):
    candidates, scores, rarity, *_ = made(seed=seed)
    for shift in (0.0, -3.0):  # only differences of rarity matter
        kept = within_reach(scores, candidates, rarity + shift)
        assert not kept.all()
        for tilt in TILTS[::6]:
            first = first_places(scores + tilt * (rarity + shift), candidates, 5)
            assert kept[first[first >= 0]].all()


def only_rare_are_right(n, share):
    """One frequent and one rare candidate each; the rare one is right in a share of the queries."""
    queries, rows = np.repeat(np.arange(n), 2), np.tile([0, 1], n)
    rare = np.arange(n) < share * n
    positive = np.stack([~rare, rare], axis=1).ravel()
    scores, rarity = np.tile([0.1, 0.0], n), np.tile([0.0, 1.0], n)
    return Candidates(queries, rows, {}, n), scores, rarity, positive


def test_what_is_expected_decides_where_counts_are_chance():
    candidates, scores, rarity, positive = only_rare_are_right(20, 0.6)
    even, worse = np.tile([0.5, 0.5], 20), np.tile([0.7, 0.3], 20)
    assert tilted(scores, candidates, rarity, even, positive) > 0
    # Four right answers more of twenty, but probabilities speak against it.
    assert tilted(scores, candidates, rarity, worse, positive) == 0


def test_what_is_counted_decides_where_there_is_much():
    candidates, scores, rarity, positive = only_rare_are_right(20_000, 0.6)
    worse = np.tile([0.52, 0.48], 20_000)
    assert tilted(scores, candidates, rarity, worse, positive) > 0


def test_no_tilt_where_rare_labels_gain_nothing():
    candidates, scores, rarity, positive = only_rare_are_right(50, 0.0)
    assert tilted(scores, candidates, rarity, np.full(100, 0.5), positive) == TILTS[0]
    nothing = np.zeros(100, bool)
    assert tilted(scores, candidates, rarity, np.full(100, 0.5), nothing) == TILTS[0]


def test_nothing_to_answer_with_is_no_tilt():
    none = np.zeros(0)
    candidates = Candidates(none.astype(int), none.astype(int), {}, 3)
    assert tilted(none, candidates, none, none, none.astype(bool)) == TILTS[0]


def test_a_loss_lies_between_what_is_expected_and_what_was_counted():
    rng = np.random.default_rng(0)
    expected = rng.random(300) * 1e-5
    for spread in (0.0, 1e-6, 1e-4, 1e-2):
        noise = rng.normal(size=300) * spread
        counted = 3 * expected.mean() + noise - noise.mean()
        low, high = expected.sum(), counted.sum()
        assert low <= loss(expected, counted) <= high
    assert loss(expected, np.full(300, 1e-4)) == pytest.approx(0.03)
    assert loss(np.zeros(300), np.zeros(300)) == 0.0


def test_parts_are_left_out_for_a_gain_that_costs_no_precision():
    reference, whole = dict.fromkeys(METRICS, 40.0), dict.fromkeys(METRICS, 44.0)
    rare = {name: 52.0 if name.startswith("PSP") else 44.0 for name in METRICS}
    assert chosen_way([whole, rare], reference, 1000) == 1
    for name in METRICS[:3]:
        one = 100 / (1000 * int(name[2:]))
        least = 44.0 * 0.997 - one
        assert chosen_way([whole, {**rare, name: least + 0.001}], reference, 1000) == 1
        assert chosen_way([whole, {**rare, name: least - 0.001}], reference, 1000) == 0


def test_a_loss_in_one_metric_weighs_more_than_the_same_gain_in_another():
    reference = dict.fromkeys(METRICS, 40.0)
    mixed = {**reference, "P@1": 44.0, "PSP@1": 36.0}
    assert better(mixed, reference) < better(reference, reference) == 1.0
    assert better(dict.fromkeys(METRICS, 0.0), dict.fromkeys(METRICS, 0.0)) == 1.0


def test_two_hundred_queries_do_not_throw_out_half_of_the_parts():
    """Figures of a fit: on test the heads alone were two points of P@1 below all parts."""
    whole = dict(zip(METRICS, (73.36, 52.34, 41.21, 53.61, 63.92, 70.74), strict=True))
    heads = dict(zip(METRICS, (76.17, 52.34, 41.21, 58.77, 64.21, 70.84), strict=True))
    reference = dict(zip(METRICS, (74.0, 51.0, 40.0, 58.0, 64.0, 70.0), strict=True))
    assert chosen_way([whole, heads], reference, 214) == 0
    assert chosen_way([whole, heads], reference, 20_000) == 1
