import numpy as np
import pytest
import torch

from umpteen.data import clusters
from umpteen.data.clusters import Halving, balanced_clusters


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def unit(n, dim=8, seed=0):
    vectors = torch.randn(n, dim, generator=generator(seed))
    return torch.nn.functional.normalize(vectors, dim=1)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 16, 33, 61, 100])
@pytest.mark.parametrize("n_levels", [0, 1, 2, 3, 5])
def test_every_row_is_in_one_cluster_and_sizes_differ_by_at_most_one(n, n_levels):
    order, bounds = balanced_clusters(unit(n), n_levels, generator=generator())
    assert order.dtype == bounds.dtype == torch.int64
    assert sorted(order.tolist()) == list(range(n))
    assert len(bounds) == 2**n_levels + 1
    assert (bounds[0], bounds[-1]) == (0, n)
    sizes = bounds.diff()
    assert sizes.min() >= 0
    assert sizes.max() - sizes.min() <= 1


def test_separated_groups_of_equal_size_are_found():
    centres = torch.eye(4)  # four groups of 25 around four axes
    group = torch.arange(100) % 4
    vectors = centres[group] + 0.05 * torch.randn(100, 4, generator=generator(1))
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    found = 0
    for seed in range(10):
        order, bounds = balanced_clusters(vectors, 2, generator=generator(seed))
        clusters = [group[order[bounds[c] : bounds[c + 1]]] for c in range(4)]
        found += all(len(c.unique()) == 1 for c in clusters)
    assert found >= 8  # two first centres in one group may end in a mixed cut


def test_clusters_are_tighter_than_random_groups():
    vectors = unit(128, dim=4, seed=2)
    order, bounds = balanced_clusters(vectors, 3, generator=generator())

    def tightness(rows):
        return torch.stack([vectors[rows[b : b + 16]].mean(0).norm() for b in range(0, 128, 16)])

    assert bounds.tolist() == list(range(0, 129, 16))
    random_order = torch.randperm(128, generator=generator(3))
    assert tightness(order).mean() > 1.8 * tightness(random_order).mean()


def test_the_generator_decides_and_nothing_else_does():
    vectors = unit(50)
    first, _ = balanced_clusters(vectors, 3, generator=generator(1))
    torch.manual_seed(99)
    again, _ = balanced_clusters(vectors, 3, generator=generator(1))
    other, _ = balanced_clusters(vectors, 3, generator=generator(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("vectors", [torch.zeros(9, 3), torch.ones(9, 3)])
def test_equal_vectors_are_still_split_evenly(vectors):
    order, bounds = balanced_clusters(vectors, 2, generator=generator())
    assert sorted(order.tolist()) == list(range(9))
    assert sorted(bounds.diff().tolist()) == [2, 2, 2, 3]


def test_no_rows_give_empty_clusters():
    order, bounds = balanced_clusters(torch.zeros(0, 3), 2, generator=generator())
    assert order.tolist() == []
    assert bounds.tolist() == [0, 0, 0, 0, 0]


def test_vectors_are_not_modified_and_half_precision_is_accepted():
    vectors = unit(20)
    before = vectors.clone()
    balanced_clusters(vectors, 2, generator=generator())
    assert torch.equal(vectors, before)
    order, _ = balanced_clusters(vectors.bfloat16(), 2, generator=generator())
    assert sorted(order.tolist()) == list(range(20))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_means_of_runs_of_any_length(device, dtype):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    sizes = np.array([1, 512, 0, 513, 1500, 0, 3])
    vectors = unit(int(sizes.sum()), dim=5).to(device, dtype)
    found = clusters._means(vectors, *clusters._pieces(sizes, vectors.device))
    sums = [part.double().sum(0) for part in vectors.split(sizes.tolist())]
    wanted = torch.nn.functional.normalize(torch.stack(sums), dim=1)
    # 1,500 terms of size one, summed in float32.
    torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=0)


def test_one_sort_equals_a_stable_sort_by_lean_then_by_cluster():
    values = torch.tensor([0.0, -0.0, 1.5, -1.5, 1e-30, -1e30, 1e30])
    lean = values[torch.randint(7, (500,), generator=generator(1))]
    cluster = torch.randint(5, (500,), generator=generator(2))
    by_lean = torch.argsort(lean, descending=True, stable=True)
    wanted = by_lean[torch.argsort(cluster[by_lean], stable=True)]
    assert torch.equal(torch.argsort(clusters._keys(cluster, lean), stable=True), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_points_are_split_as_well_as_few(dtype):
    vectors = unit(5001, dim=6, seed=4).to(dtype)
    order, bounds = balanced_clusters(vectors, 4, generator=generator())
    assert torch.equal(order.sort().values, torch.arange(5001))
    assert bounds.diff().unique().tolist() == [312, 313]

    def tightness(rows):
        return torch.stack([vectors[part].float().mean(0).norm() for part in rows.split(313)])

    # By chance it is 1 / sqrt(313), 0.06.
    assert tightness(order).mean() > 0.6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_not_waited_for_and_repeats_itself():
    vectors = unit(40_001, dim=64).cuda()
    first, _ = balanced_clusters(vectors, 5, generator=generator())
    torch.cuda.set_sync_debug_mode("error")
    try:
        again, bounds = balanced_clusters(vectors, 5, generator=generator())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(first, again)
    assert bounds.diff().unique().tolist() == [1250, 1251]


@pytest.mark.parametrize("n", [400, 1001])
def test_centres_from_a_sample_leave_sizes_and_groups_alone(n, monkeypatch):
    monkeypatch.setattr(clusters, "SAMPLED_ROWS", 64)
    monkeypatch.setattr(clusters, "MIN_SAMPLED", 16)
    assert clusters._sampled_of_each(n, 4, torch.device("cpu")) == 16
    assert clusters._sampled_of_each(n, 4, torch.device("cuda")) == 0
    assert clusters._sampled_of_each(n, n, torch.device("cpu")) == 0
    group = torch.arange(n) % 4
    vectors = torch.eye(4)[group] + 0.05 * torch.randn(n, 4, generator=generator(1))
    found = 0
    for seed in range(10):
        order, bounds = balanced_clusters(vectors, 2, generator=generator(seed))
        assert sorted(order.tolist()) == list(range(n))
        assert bounds.diff().max() - bounds.diff().min() <= 1
        parts = [group[order[bounds[c] : bounds[c + 1]]].bincount() for c in range(4)]
        found += all(part.max() >= 0.98 * part.sum() for part in parts)
    assert found >= 3


@pytest.mark.parametrize("n", [1, 100, 1001])
@pytest.mark.parametrize("sampled", [False, True])
def test_clusters_split_one_by_one_are_those_that_are_split_at_once(n, sampled, monkeypatch):
    if sampled:
        monkeypatch.setattr(clusters, "SAMPLED_ROWS", 64)
        monkeypatch.setattr(clusters, "MIN_SAMPLED", 16)
    monkeypatch.setattr(clusters, "BLOCK_NUMBERS", 0)
    at_once, bounds = balanced_clusters(unit(n), 6, generator=generator())
    calls = []
    one_by_one = Halving._one_by_one
    monkeypatch.setattr(
        Halving, "_one_by_one", lambda *given: calls.append(given) or one_by_one(*given)
    )
    for numbers in (300, 1000, 3000):
        monkeypatch.setattr(clusters, "BLOCK_NUMBERS", numbers)
        order, again = balanced_clusters(unit(n), 6, generator=generator())
        assert torch.equal(order, at_once)
        assert torch.equal(again, bounds)
    assert len(calls) == {1: 0, 100: 1, 1001: 3}[n]
