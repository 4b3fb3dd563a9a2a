import numpy as np
import scipy.sparse as sp

from umpteen.metrics.hits import find_hits
from umpteen.metrics.reciprocal_rank import ReciprocalRank
from umpteen.types import TopK


def test_the_first_hit_counts_and_k_bounds_the_look():
    truth = sp.csr_matrix(np.array([[0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0.0]]))
    rows = np.array([[0, 1, 2, 3], [0, 1, 2, 3], [0, 2, 3, -1]])
    hits = find_hits(TopK(rows, np.zeros(rows.shape, np.float32)), truth)
    assert ReciprocalRank().per_query(hits).tolist() == [1 / 3, 1.0, 0.0]
    assert ReciprocalRank(2).per_query(hits).tolist() == [0.0, 1.0, 0.0]


def test_no_places_at_all_are_zero():
    topk = TopK(np.zeros((2, 0), np.int64), np.zeros((2, 0), np.float32))
    assert ReciprocalRank().mean(find_hits(topk, sp.csr_matrix(np.ones((2, 3))))) == 0.0
