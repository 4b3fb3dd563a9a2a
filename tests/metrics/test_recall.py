import numpy as np
import scipy.sparse as sp

from umpteen.metrics.hits import find_hits
from umpteen.metrics.recall import Recall, RPrecision
from umpteen.types import TopK


def example():
    truth = np.zeros((3, 8))
    truth[0, :6] = 1
    truth[1, 0] = 1
    topk = TopK(np.array([[0, 1, 7], [7, 0, 6], [0, 1, 2]]), np.zeros((3, 3), np.float32))
    return find_hits(topk, sp.csr_matrix(truth))


def test_recall_divides_by_positives_and_an_empty_query_is_zero_not_nan():
    np.testing.assert_allclose(Recall(3).per_query(example()), [2 / 6, 1.0, 0.0])


def test_r_precision_divides_by_what_k_places_could_hold():
    np.testing.assert_allclose(RPrecision(3).per_query(example()), [2 / 3, 1.0, 0.0])
    np.testing.assert_allclose(RPrecision(1).per_query(example()), [1.0, 0.0, 0.0])
