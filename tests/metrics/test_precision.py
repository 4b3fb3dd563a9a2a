import numpy as np
import scipy.sparse as sp

from umpteen.metrics.hits import find_hits
from umpteen.metrics.precision import Precision
from umpteen.types import TopK


def test_fewer_than_k_predictions_are_misses():
    topk = TopK(np.array([[0, -1]]), np.array([[1.0, -np.inf]], np.float32))
    hits = find_hits(topk, sp.csr_matrix(np.ones((1, 6))))
    assert Precision(1).mean(hits) == 1.0
    assert Precision(5).mean(hits) == 1 / 5  # neither 1 (over predictions) nor 1/2 (over width)


def test_a_query_without_positives_counts_as_zero():
    topk = TopK(np.array([[0], [0]]), np.zeros((2, 1), np.float32))
    hits = find_hits(topk, sp.csr_matrix(np.array([[1.0, 0.0], [0.0, 0.0]])))
    assert Precision(1).per_query(hits).tolist() == [1.0, 0.0]
    assert Precision(1).mean(hits) == 0.5
