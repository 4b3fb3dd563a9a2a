"""Mining block by block against one sort of all scores."""

import numpy as np
import pytest
import torch

from umpteen.data.dataset import targets_from_rows
from umpteen.index import cluster_search
from umpteen.training.mining import is_clustered, mine

N, L, D = 41, 300, 8


def make(seed=0):
    rng = np.random.default_rng(seed)
    queries, labels = (torch.from_numpy(rng.standard_normal((n, D))).float() for n in (N, L))
    rows = [rng.choice(L, rng.integers(0, 60), replace=False).tolist() for _ in range(N)]
    rows[5] = list(range(L - 2))
    filters = np.stack([rng.integers(0, N, 70), rng.integers(0, L, 70)], axis=1)
    return queries, labels, targets_from_rows(rows, L), filters


# With so few labels every query is compared with all clusters.
@pytest.mark.parametrize("search", ["auto", "exact", "bfloat16", "clusters"])
@pytest.mark.parametrize("queries_per_block", [1, 7, 40, 41, 1000])
def test_blocks_give_what_a_sort_of_everything_gives(search, queries_per_block, monkeypatch):
    monkeypatch.setattr(cluster_search, "PROBES", 1000)
    queries, labels, targets, filters = make()
    scores = (queries @ labels.T).numpy()
    scores[targets.nonzero()] = -np.inf
    scores[filters[:, 0], filters[:, 1]] = -np.inf
    wanted = np.argsort(-scores, axis=1)[:, :9]
    wanted[np.isneginf(np.take_along_axis(scores, wanted, 1))] = -1
    found = mine(
        queries, labels, targets, filters, 9,
        search=search, queries_per_block=queries_per_block,
    )  # fmt: skip
    assert found.dtype == np.int32
    # One query has two labels left at most, in any order among those that are none.
    assert np.array_equal(found, wanted)


def test_none_are_searched_when_none_are_kept():
    queries, labels, targets, filters = make()
    assert mine(queries, labels, targets, filters, 0).shape == (N, 0)


def test_no_filters_and_no_positives():
    queries, labels, _, _ = make()
    nothing = targets_from_rows([[]] * N, L)
    found = mine(queries, labels, nothing, np.empty((0, 2), np.int64), L)
    assert np.array_equal(np.sort(found, axis=1), np.tile(np.arange(L), (N, 1)))


@pytest.mark.parametrize(
    ("search", "n_queries", "n_labels", "cuda", "expected"),
    [
        ("auto", 1 << 15, 1 << 15, False, False),
        ("auto", (1 << 15) + 1, 1 << 15, False, True),
        ("auto", 1 << 30, 8191, False, False),
        ("auto", 1 << 20, 1 << 20, True, False),
        ("exact", 1 << 20, 1 << 20, False, False),
        ("clusters", 10, 10, True, True),
    ],
)
def test_many_pairs_are_searched_in_clusters(search, n_queries, n_labels, cuda, expected):
    assert is_clustered(search, n_queries, n_labels, cuda=cuda) == expected
