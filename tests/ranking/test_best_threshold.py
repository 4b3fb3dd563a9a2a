"""The threshold with the best micro-F1, compared with all others."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.errors import DataError
from umpteen.ranking.thresholds import best_threshold, f1_scores
from umpteen.types import TopK


def micro_f1(topk, truth, threshold):
    return f1_scores(topk, truth, threshold)["micro_f1"] / 100


def random_case(seed):
    rng = np.random.default_rng(seed)
    truth = rng.random((8, 6)) < 0.35
    rows = np.argsort(rng.random((8, 6)), axis=1)[:, :4]
    scores = -np.sort(-rng.integers(-3, 3, (8, 4)), axis=1).astype(np.float32)
    vacant = np.arange(4) >= rng.integers(1, 5, 8)[:, None]
    rows[vacant], scores[vacant] = -1, -np.inf
    return TopK(rows, scores), sp.csr_matrix(truth, dtype=np.float32)


def brute_f1(topk, truth, threshold):
    said = {
        (query, int(row))
        for query in range(len(topk))
        for row, score in zip(topk.rows[query], topk.scores[query], strict=True)
        if row >= 0 and score >= threshold
    }
    true = set(zip(*(axis.tolist() for axis in truth.nonzero()), strict=True))
    both = len(said & true)
    precision = both / len(said) if said else 0.0
    recall = both / len(true) if true else 0.0
    return 2 * precision * recall / (precision + recall) if both else 0.0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_the_threshold_is_the_best_of_all_and_ties_go_together(seed):
    topk, truth = random_case(seed)
    values = {t: brute_f1(topk, truth, t) for t in np.unique(topk.scores[topk.rows >= 0]).tolist()}
    for threshold, value in values.items():
        assert micro_f1(topk, truth, threshold) == pytest.approx(value)
    chosen = best_threshold(topk, truth)
    best = max(values.values())
    assert micro_f1(topk, truth, chosen) == pytest.approx(best)
    assert chosen == max(t for t, value in values.items() if value >= best - 1e-12)


def test_vacant_places_are_never_said():
    topk = TopK(np.array([[0, -1]]), np.array([[0.5, -np.inf]], np.float32))
    assert micro_f1(topk, sp.csr_matrix(np.array([[1.0, 0]])), -np.inf) == 1.0


def test_a_threshold_survives_being_written_as_a_number():
    score = np.float32(0.1)
    topk = TopK(np.array([[0]]), np.array([[score]], np.float32))
    truth = sp.csr_matrix(np.ones((1, 1)))
    assert micro_f1(topk, truth, float(repr(best_threshold(topk, truth)))) == 1.0


def test_nothing_predicted_and_nothing_true_is_zero():
    topk = TopK(np.array([[-1]]), np.array([[-np.inf]], np.float32))
    assert micro_f1(topk, sp.csr_matrix((1, 2)), 0.0) == 0.0
    with pytest.raises(DataError, match="no predictions"):
        best_threshold(topk, sp.csr_matrix((1, 2)))
