"""Clusters of texts and of labels made in shares: every rank gets those of one rank."""

import numpy as np
import pytest
import torch
from rank_children import on_ranks

from umpteen.compute.distributed.sharding import ONE_RANK
from umpteen.data import clusters
from umpteen.data.clusters import balanced_clusters
from umpteen.index.cluster_search import ClusterSearch
from umpteen.training.clusters_on_ranks import clusters_on_ranks, first_levels

CASES = [(0, 3), (1, 2), (5, 4), (37, 0), (37, 1), (1001, 6), (3003, 7)]
"""Rows and levels."""


def drawn(n, dim=6):
    vectors = torch.randn(n, dim, generator=torch.Generator().manual_seed(n))
    return torch.nn.functional.normalize(vectors, dim=1)


def generator():
    return torch.Generator().manual_seed(3)


def shrink():
    """Take samples, and split clusters by themselves, at the sizes of these tests."""
    clusters.SAMPLED_ROWS, clusters.MIN_SAMPLED, clusters.BLOCK_NUMBERS = 256, 16, 500


@pytest.fixture
def small_limits(monkeypatch):
    for name in ("SAMPLED_ROWS", "MIN_SAMPLED", "BLOCK_NUMBERS"):
        monkeypatch.setattr(clusters, name, getattr(clusters, name))
    shrink()


def in_shares(ranks, folder):
    """What a rank does: cluster each case, and labels for a search; note what came of it."""
    shrink()
    found = {}
    for n, levels in CASES:
        order, bounds = clusters_on_ranks(drawn(n), levels, generator=generator(), ranks=ranks)
        found |= {f"order-{n}-{levels}": order.numpy(), f"bounds-{n}-{levels}": bounds.numpy()}
    search = ClusterSearch(drawn(701), seed=2, probes=4, ranks=ranks)
    found["rows"] = search.search(drawn(13), 5).rows
    np.savez(folder / f"{ranks.rank}.npz", **found)


@pytest.mark.parametrize("world", [2, 3])
def test_clusters_made_in_shares_are_those_of_one_rank(world, tmp_path, small_limits):
    assert on_ranks(__file__, "in_shares", world, tmp_path) == [0] * world
    made = [np.load(tmp_path / f"{rank}.npz") for rank in range(world)]
    rows = ClusterSearch(drawn(701), seed=2, probes=4).search(drawn(13), 5).rows
    for each in made:
        np.testing.assert_array_equal(each["rows"], rows)
        for n, levels in CASES:
            order, bounds = balanced_clusters(drawn(n), levels, generator=generator())
            np.testing.assert_array_equal(each[f"order-{n}-{levels}"], order)
            np.testing.assert_array_equal(each[f"bounds-{n}-{levels}"], bounds)


@pytest.mark.parametrize(("n", "levels"), CASES)
def test_one_rank_makes_balanced_clusters(n, levels):
    found = clusters_on_ranks(drawn(n), levels, generator=generator(), ranks=ONE_RANK)
    wanted = balanced_clusters(drawn(n), levels, generator=generator())
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("world", range(1, 20))
def test_shares_of_ranks_are_about_even(world):
    parts = 2 ** first_levels(world)
    sizes = np.diff(np.arange(world + 1) * parts // world)
    assert sizes.min() >= 1
    assert sizes.max() <= 1.26 * parts / world
