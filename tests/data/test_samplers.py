import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data.samplers import (
    cluster_levels,
    clustered_batches,
    coarser,
    cut,
    grown_cluster_size,
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


@pytest.mark.parametrize(
    ("start", "batch_size", "sizes"),
    [
        (1, 1600, [1, 1, 2, 4, 512]),
        (3, 1600, [3, 3, 6, 12, 512]),
        (1, 100, [1, 1, 2, 4, 100]),
        (700, 1600, [700, 700, 700, 700, 700]),
    ],
)
def test_clusters_double_at_their_epochs_up_to_512_or_the_batch(start, batch_size, sizes):
    double_epochs = [2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    epochs = (0, 1, 2, 4, 50)
    found = [grown_cluster_size(epoch, start, double_epochs, batch_size) for epoch in epochs]
    assert found == sizes


def test_without_doubling_a_cluster_keeps_its_size_whatever_the_batch():
    assert [grown_cluster_size(epoch, 900, [], 400) for epoch in (0, 7)] == [900, 900]


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 6), st.integers(1, 400))
def test_coarser_clusters_are_those_of_fewer_halvings(n, levels, size):
    import torch

    from umpteen.data.clusters import balanced_clusters

    vectors = torch.randn(n, 3, generator=torch.Generator().manual_seed(n))
    made = {}
    for depth in range(levels + 1):  # the same draws for the first levels
        generator = torch.Generator().manual_seed(5)
        made[depth] = balanced_clusters(vectors, depth, generator=generator)
    order, bounds = (part.numpy() for part in made[levels])
    joined = coarser(bounds, size)
    depth = min(levels, cluster_levels(n, size))
    expected_order, expected = (part.numpy() for part in made[depth])
    assert joined.tolist() == expected.tolist()
    for start, stop in zip(joined[:-1], joined[1:], strict=True):
        assert set(order[start:stop]) == set(expected_order[start:stop])


def test_very_many_small_clusters_stay_together_and_change_their_order():
    order, bounds = np.arange(200_000), np.arange(0, 200_001, 2)
    batches = clustered_batches(order, bounds, 1000, seed=0, epoch=0)
    pairs = np.sort(np.concatenate(batches).reshape(-1, 2), axis=1)
    assert (pairs[:, 1] - pairs[:, 0] == 1).all()
    assert (pairs[:, 0] % 2 == 0).all()
    assert not (np.diff(pairs[:, 0]) == 2).all()
