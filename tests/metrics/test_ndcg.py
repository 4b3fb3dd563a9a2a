import math

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.metrics.hits import find_hits
from umpteen.metrics.ndcg import NDCG
from umpteen.types import TopK


def test_the_bound_uses_the_smaller_of_k_and_positives():
    topk = TopK(np.array([[3, 0, 4]]), np.zeros((1, 3), np.float32))
    hits = find_hits(topk, sp.csr_matrix(np.array([[1.0, 1.0, 0, 0, 0]])))
    expected = (1 / math.log2(3)) / (1 + 1 / math.log2(3))  # two positives, not three places
    assert NDCG(3).mean(hits) == pytest.approx(expected)


def test_a_k_far_beyond_everything_costs_nothing():
    topk = TopK(np.array([[0]]), np.zeros((1, 1), np.float32))
    hits = find_hits(topk, sp.csr_matrix(np.ones((1, 2))))
    assert NDCG(10**12).mean(hits) == NDCG(2).mean(hits)


def test_a_perfect_list_never_passes_one():
    for positives in range(1, 40):
        topk = TopK(np.arange(40)[None], np.zeros((1, 40), np.float32))
        truth = sp.csr_matrix((np.arange(40) < positives).astype(float)[None])
        assert NDCG(40).mean(find_hits(topk, truth)) <= 1.0
