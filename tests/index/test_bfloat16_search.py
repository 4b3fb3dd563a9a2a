"""A search that rounds first returns the rows and scores of an exact one, but for near ties."""

import numpy as np
import pytest
import torch

from umpteen.index.bfloat16_search import Bfloat16Index
from umpteen.index.exact import ExactIndex


def unit(n, dim, seed):
    vectors = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    return torch.from_numpy(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.parametrize(("n", "k"), [(331, 5), (97, 40), (30, 29)])
def test_rows_and_full_scores_are_those_of_an_exact_search(n, k):
    vectors, queries = unit(n, 33, 1), unit(23, 33, 2)
    top, wanted = Bfloat16Index(vectors).search(queries, k), ExactIndex(vectors).search(queries, k)
    same = [len(set(a) & set(b)) / k for a, b in zip(top.rows, wanted.rows, strict=True)]
    assert np.mean(same) > 0.99
    np.testing.assert_allclose(top.scores, wanted.scores, atol=5e-3)
    full = queries.double() @ vectors.double().T
    found = np.take_along_axis(full.numpy(), top.rows, 1)
    np.testing.assert_allclose(top.scores, found, atol=1e-6)
    assert (np.diff(top.scores, axis=1) <= 0).all()


def test_excluded_and_forbidden_rows_are_never_returned():
    vectors, queries = unit(200, 8, 3), unit(17, 8, 4)
    exclude = np.column_stack([np.repeat(np.arange(17), 3), np.tile([5, 6, 7], 17)])
    allowed = np.arange(200) % 2 == 1
    for rescore in (True, False):
        index = Bfloat16Index(vectors, rescore=rescore)
        top = index.search(queries, 20, exclude=exclude, allowed=allowed)
        assert allowed[top.rows].all()
        assert not np.isin(top.rows, [5, 7]).any()


def test_few_queries_are_searched_in_full():
    vectors, queries = unit(500, 16, 5), unit(1, 16, 6)
    top = Bfloat16Index(vectors, rescore=False).search(queries, 10)
    wanted = ExactIndex(vectors).search(queries, 10)
    np.testing.assert_array_equal(top.rows, wanted.rows)
    np.testing.assert_array_equal(top.scores, wanted.scores)
