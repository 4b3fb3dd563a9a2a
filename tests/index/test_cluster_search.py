"""Search in clusters: exact where every cluster is looked into, near to it where few are."""

import numpy as np
import pytest
import torch

from umpteen.index.cluster_search import ClusterSearch
from umpteen.index.exact import ExactIndex

N, L, D, K = 200, 3001, 16, 10


@pytest.fixture(scope="module")
def vectors():
    generator = torch.Generator().manual_seed(0)
    topics = torch.randn(60, D, generator=generator)
    near = torch.randn(L, D, generator=generator)
    labels = topics[torch.arange(L) % 60] + 0.5 * near
    queries = labels[torch.randperm(L, generator=generator)[:N]] + 0.1 * near[:N]
    return [torch.nn.functional.normalize(each, dim=1) for each in (queries, labels)]


def pairs(seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, N, 4000), rng.integers(0, L, 4000)], axis=1)


@pytest.mark.parametrize("memory_bytes", [1, 1 << 20, 1 << 28])
def test_all_clusters_give_the_exact_answer(vectors, memory_bytes):
    queries, labels = vectors
    found = ClusterSearch(labels, probes=1000, memory_bytes=memory_bytes).search(
        queries, K, exclude=pairs()
    )
    exact = ExactIndex.build(labels).search(queries, K, exclude=pairs())
    assert np.array_equal(found.rows, exact.rows)
    np.testing.assert_allclose(found.scores, exact.scores, atol=1e-5)


def test_few_clusters_give_most_of_it_and_nothing_excluded(vectors):
    queries, labels = vectors
    exact = ExactIndex.build(labels).search(queries, K)
    excluded = np.stack([np.repeat(np.arange(N), 3), exact.rows[:, :3].reshape(-1)], axis=1)
    search = ClusterSearch(labels, probes=24)
    assert 150 < len(search.sizes) < 400
    assert int(search.sizes.min()) > 0
    assert int(search.sizes.max()) <= 2 * L / 219 + 1
    again = ClusterSearch(labels, probes=24)
    assert torch.equal(search.members, again.members)
    found = search.search(queries, K, exclude=excluded)
    wanted = ExactIndex.build(labels).search(queries, K, exclude=excluded)
    same = [len(np.intersect1d(a, b)) for a, b in zip(found.rows, wanted.rows, strict=True)]
    assert np.mean(same) / K > 0.9
    hit = (found.rows[:, :, None] == exact.rows[:, None, :3]).any()
    assert not hit
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_places_without_a_label_are_marked(vectors):
    queries, labels = vectors
    found = ClusterSearch(labels[:5], probes=1).search(queries[:2], 7)
    assert found.rows.shape == (2, 7)
    assert (found.rows == -1).any()
    assert np.isneginf(found.scores[found.rows < 0]).all()
