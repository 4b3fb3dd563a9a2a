import numpy as np
import scipy.sparse as sp

from umpteen.metrics.coverage import Coverage
from umpteen.metrics.hits import find_hits
from umpteen.types import TopK


def test_a_label_counts_once_and_only_where_it_is_right():
    truth = sp.csr_matrix(np.array([[1, 1, 0, 0], [1, 0, 1, 0.0]]))
    # Label 0 is right twice; 2 is predicted for the wrong query; 3 has no positive at all.
    topk = TopK(np.array([[0, 2], [0, 3]]), np.zeros((2, 2), np.float32))
    assert Coverage(2).mean(find_hits(topk, truth)) == 1 / 3
