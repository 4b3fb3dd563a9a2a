import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.metrics.f1 import MacroF1
from umpteen.metrics.hits import find_hits
from umpteen.types import TopK


def test_each_label_with_a_positive_counts_the_same():
    truth = sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0.0]]))
    topk = TopK(np.array([[0], [0], [2]]), np.zeros((3, 1), np.float32))
    # Label 0: 2 of 3 found, none wrong, F1 0.8. Label 1: never found. Label 2 has no positive.
    assert MacroF1(1).mean(find_hits(topk, truth)) == pytest.approx((0.8 + 0.0) / 2)


def test_wrong_predictions_of_a_label_lower_it():
    truth = sp.csr_matrix(np.array([[1, 0], [0, 1.0]]))
    topk = TopK(np.array([[0], [0]]), np.zeros((2, 1), np.float32))
    assert MacroF1(1).mean(find_hits(topk, truth)) == pytest.approx((2 / 3 + 0) / 2)
