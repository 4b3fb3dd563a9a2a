"""A search over labels that several ranks hold comes to that of one rank which holds them all."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from rank_children import on_ranks, said

from umpteen.compute.distributed.sharding import Shards
from umpteen.index.exact import ExactIndex
from umpteen.training.mining import mine
from umpteen.training.sharded_search import ShardedSearch

pytestmark = pytest.mark.processes
N_QUERIES, DIM, K = 9, 4, 6


def whole_numbers(seed, n):
    """Ties everywhere, and every product exact."""
    drawn = np.random.default_rng(seed).integers(-2, 3, (n, DIM))
    return torch.from_numpy(drawn.astype(np.float32))


def pairs(n_labels):
    rng = np.random.default_rng(3)
    return np.stack([rng.integers(0, n, 40) for n in (N_QUERIES, n_labels)], axis=1)


def targets(n_labels):
    rows, cols = pairs(n_labels).T
    shape = (N_QUERIES, n_labels)
    made = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, cols)), shape=shape)
    made.sum_duplicates()
    return made


def search_and_mine(ranks, folder):
    """What a rank does: search its own labels of 70, then of 2, then mine."""
    found = []
    for n_labels in (70, 2):
        shards = Shards(ranks, ranks.bounds(n_labels))
        own = whole_numbers(1, n_labels)[shards.own.start : shards.own.stop]
        index = ExactIndex.build(own) if len(own) else None
        search = ShardedSearch(index, shards)
        top = search.search(whole_numbers(2, N_QUERIES), K, exclude=pairs(n_labels))
        mined = mine(
            whole_numbers(2, N_QUERIES), own, targets(n_labels), np.empty((0, 2), np.int64), K,
            search="exact", queries_per_block=4, shards=shards,
        )  # fmt: skip
        scores = np.nan_to_num(top.scores, neginf=-1e9)
        found.append([top.rows.tolist(), scores.tolist(), mined.tolist()])
    (folder / f"{ranks.rank}.json").write_text(json.dumps(found))


@pytest.mark.parametrize("world", [2, 3])
def test_shards_come_to_the_whole(world, tmp_path):
    assert on_ranks(__file__, "search_and_mine", world, tmp_path) == [0] * world, said(tmp_path)
    for n_labels, place in ((70, 0), (2, 1)):
        exact = ExactIndex.build(whole_numbers(1, n_labels))
        top = exact.search(whole_numbers(2, N_QUERIES), K, exclude=pairs(n_labels))
        scores = np.nan_to_num(top.scores, neginf=-1e9)
        for rank in range(world):
            rows, theirs, mined = json.loads((tmp_path / f"{rank}.json").read_text())[place]
            assert rows == top.rows.tolist()
            assert theirs == scores.tolist()
            assert mined == top.rows.tolist()
