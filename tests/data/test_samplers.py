import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data.samplers import (
    cluster_levels,
    clustered_batches,
    cut,
    shuffled_batches,
    step_seed,
)


def clusters_of(sizes):
    order = np.random.default_rng(0).permutation(sum(sizes))
    return order, np.concatenate([[0], np.cumsum(sizes)])


def same(first, second):
    return len(first) == len(second) and all(map(np.array_equal, first, second))


@settings(deadline=None)
@given(st.integers(1, 90), st.integers(1, 40), st.integers(0, 5), st.integers(0, 5))
def test_shuffled_batches_hold_every_query_once_in_equal_parts(n, size, seed, epoch):
    batches = shuffled_batches(n, size, seed=seed, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(n))
    lengths = [len(b) for b in batches]
    assert max(lengths) <= size
    assert max(lengths) - min(lengths) <= 1
    assert len(batches) == -(-n // size)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 30))
def test_clustered_batches_hold_every_query_once(sizes, size):
    order, bounds = clusters_of(sizes)
    batches = clustered_batches(order, bounds, size, seed=1, epoch=2)
    everything = np.concatenate([*batches, np.zeros(0, np.int64)])
    assert sorted(everything.tolist()) == list(range(sum(sizes)))
    assert all(len(b) for b in batches)
    assert max(map(len, batches), default=0) <= max(size, *sizes)


@pytest.mark.parametrize(
    "plan",
    [
        lambda seed, epoch: shuffled_batches(40, 7, seed=seed, epoch=epoch),
        lambda seed, epoch: clustered_batches(*clusters_of([5] * 8), 20, seed=seed, epoch=epoch),
        lambda seed, epoch: clustered_batches(*clusters_of([20, 20]), 20, seed=seed, epoch=epoch),
    ],
)
def test_a_plan_is_a_pure_function_of_seed_and_epoch(plan):
    first = plan(3, 1)
    np.random.default_rng(0).random(5)
    assert same(first, plan(3, 1))
    assert not same(first, plan(3, 2))
    assert not same(first, plan(4, 1))


def test_clusters_near_the_batch_size_are_batches_and_smaller_ones_stay_together():
    order, bounds = clusters_of([6, 7, 6, 7])
    groups = [set(order[bounds[c] : bounds[c + 1]].tolist()) for c in range(4)]
    alone = clustered_batches(order, bounds, 10, seed=0, epoch=0)
    assert sorted(map(sorted, groups)) == sorted(sorted(b.tolist()) for b in alone)
    order, bounds = clusters_of([5] * 8)
    joined = clustered_batches(order, bounds, 20, seed=0, epoch=0)
    groups = [set(order[bounds[c] : bounds[c + 1]].tolist()) for c in range(8)]
    assert [len(b) for b in joined] == [20, 20]
    for batch in joined:
        assert sum(group <= set(batch.tolist()) for group in groups) == 4


def test_joined_clusters_meet_other_clusters_in_other_epochs():
    order, bounds = clusters_of([2] * 20)
    first, second = (clustered_batches(order, bounds, 20, seed=0, epoch=e) for e in (0, 1))
    assert set(first[0].tolist()) not in [set(b.tolist()) for b in second]


@pytest.mark.parametrize("n", [1, 5, 100, 1000, 12345])
@pytest.mark.parametrize("size", [1, 3, 64, 256, 5000])
def test_halving_comes_within_a_factor_of_the_wanted_size(n, size):
    reached = n / 2 ** cluster_levels(n, size)
    assert reached <= size * 2**0.5 + 1e-9
    assert n < size or reached >= size / 2**0.5 - 1e-9


def test_cutting_nothing_gives_no_batch():
    assert cut(np.zeros(0, np.int64), 4) == []


def test_step_seeds_differ_by_seed_step_and_part_and_fit_63_bits():
    seeds = {
        step_seed(seed, step, parts)
        for seed in range(5)
        for step in range(50)
        for parts in ((), (3,), (4,))
    }
    assert len(seeds) == 750
    assert all(0 <= s < 2**63 for s in seeds)
    assert step_seed(1, 2) == step_seed(1, 2)
