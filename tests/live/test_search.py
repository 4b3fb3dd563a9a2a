"""An index with vectors beside it answers as one exact index over all of them."""

import numpy as np
import pytest
import torch

from umpteen.index import INDEXES
from umpteen.index.exact import ExactIndex
from umpteen.live.search import search_grown
from umpteen.registry import resolve


def vectors(n, seed, dim=8):
    rng = np.random.default_rng(seed)
    # Few values: many equal scores, summed without rounding.
    return torch.from_numpy(rng.integers(-2, 3, (n, dim)).astype(np.float32))


@pytest.mark.parametrize("kind", sorted(INDEXES))
@pytest.mark.parametrize(("n", "more"), [(1, 1), (37, 5), (37, 0), (3, 50), (300, 17)])
@pytest.mark.parametrize("k", [1, 7, 60])
def test_it_equals_one_exact_search_over_all(kind, n, more, k):
    if kind == "faiss":
        pytest.importorskip("faiss")
    old, new, queries = vectors(n, 1), vectors(more, 2), vectors(11, 3)
    options = {"factory": "Flat"} if kind == "faiss" else {}
    index = resolve(INDEXES, kind, kind="index").build(old, **options)
    whole = ExactIndex.build(torch.cat([old, new]))
    rng = np.random.default_rng(4)
    allowed = rng.random(n + more) < 0.8
    pairs = np.stack([rng.integers(0, 11, 20), rng.integers(0, n + more, 20)], axis=1)
    for options in (
        {},
        {"allowed": allowed},
        {"exclude": pairs},
        {"allowed": allowed, "exclude": pairs},
        {"allowed": np.zeros(n + more, np.bool_)},
    ):
        found = search_grown(index, new, queries, k, **options)
        wanted = whole.search(queries, k, **options)
        np.testing.assert_array_equal(found.scores, wanted.scores)
        if kind == "exact":  # faiss chooses among equal scores at the k-th place by itself
            np.testing.assert_array_equal(found.rows, wanted.rows)
        real = found.rows >= 0
        assert allowed[found.rows[real]].all() or "allowed" not in options


def test_a_mask_of_another_size_is_refused():
    index = ExactIndex.build(vectors(5, 1))
    with pytest.raises(ValueError, match=r"allowed must be \(7,\)"):
        search_grown(index, vectors(2, 2), vectors(1, 3), 1, allowed=np.ones(5, np.bool_))
