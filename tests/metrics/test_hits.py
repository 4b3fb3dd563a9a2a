import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.errors import DataError
from umpteen.metrics import hits as hits_module
from umpteen.metrics.hits import drop_filtered, find_hits, put_in_order
from umpteen.types import TopK

INF = float("inf")


def topk_of(rows, scores=None):
    rows = np.array(rows, np.int64)
    if scores is None:
        scores = np.tile(-np.arange(rows.shape[1]), (len(rows), 1))
    return TopK(rows, np.array(scores, np.float32))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 9), st.integers(1, 40))
def test_hits_equal_a_look_into_the_dense_truth(seed, n, n_labels, block):
    rng = np.random.default_rng(seed)
    dense = rng.random((n, n_labels)) < 0.4
    rows = np.argsort(rng.random((n, n_labels)), axis=1)[:, : 1 + n_labels // 2]
    rows[rng.random(rows.shape) < 0.2] = -1
    expected = np.take_along_axis(dense, np.maximum(rows, 0), axis=1) & (rows >= 0)
    whole = hits_module.BLOCK
    try:
        hits_module.BLOCK = block  # block borders must not show
        found = find_hits(topk_of(rows), sp.csr_matrix(dense, dtype=np.float32))
    finally:
        hits_module.BLOCK = whole
    np.testing.assert_array_equal(found.hits, expected)
    np.testing.assert_array_equal(found.n_positives, dense.sum(axis=1))


def test_a_vacant_place_is_not_the_last_label_of_the_query_before():
    truth = sp.csr_matrix(np.array([[0, 0, 1], [1, 0, 0]]))
    assert not find_hits(topk_of([[0], [-1]]), truth).hits.any()


def test_rows_beyond_float32_stay_exact():
    big = 2**24 + 1  # float32 cannot tell this from 2**24
    truth = sp.csr_matrix(([1.0], ([1], [big])), shape=(2, big + 1))
    found = find_hits(topk_of([[big, big - 1], [big - 1, big]]), truth)
    np.testing.assert_array_equal(found.hits, [[False, False], [False, True]])


def test_rows_kept_as_floats_are_refused():
    topk = TopK(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32))
    with pytest.raises(DataError, match="must be integers, got float32"):
        find_hits(topk, sp.csr_matrix((1, 2)))


def test_keys_do_not_overflow_32_bits():
    n, n_labels = 3, 2**31 - 1
    truth = sp.csr_matrix((np.ones(3), ([0, 1, 2], [5, n_labels - 1, 7])), (n, n_labels))
    found = find_hits(topk_of([[5], [n_labels - 1], [8]]), truth)
    assert found.hits.ravel().tolist() == [True, True, False]


def test_unsorted_truth_duplicates_and_stored_zeros_are_understood():
    truth = sp.csr_matrix(
        (np.array([1.0, 1.0, 0.0, 0.5]), np.array([2, 0, 1, 2]), np.array([0, 4])), shape=(1, 3)
    )
    found = find_hits(topk_of([[0, 1, 2]]), truth)
    assert found.hits.tolist() == [[True, False, True]]
    assert found.n_positives.tolist() == [2]
    assert truth.nnz == 4  # the caller's matrix is untouched


def test_soft_targets_count_as_whole_positives():
    truth = sp.csr_matrix(np.array([[0.1, 0.0]]))
    assert find_hits(topk_of([[0]]), truth).counts(1).tolist() == [1]


def test_a_positive_predicted_twice_is_refused():
    truth = sp.csr_matrix(np.array([[1.0, 0.0], [0.0, 1.0]]))
    with pytest.raises(DataError, match="label row 1 is predicted twice for query 1"):
        find_hits(topk_of([[0, 1], [1, 1]]), truth)


@pytest.mark.parametrize(
    ("rows", "shape", "message"),
    [
        ([[0]], (2, 3), "1 queries, but the truth has 2"),
        ([[3]], (1, 3), "label row 3 is predicted, but there are 3 labels"),
    ],
)
def test_parts_that_do_not_fit_are_refused(rows, shape, message):
    with pytest.raises(DataError, match=message):
        find_hits(topk_of(rows), sp.csr_matrix(shape))


def test_weights_of_another_label_set_are_refused():
    with pytest.raises(DataError, match=r"propensities of shape \(2,\), but there are 3"):
        find_hits(topk_of([[0]]), sp.csr_matrix((1, 3)), inverse_propensities=np.ones(2))


def test_equal_scores_are_ordered_by_smaller_row():
    ordered = put_in_order(topk_of([[4, 2, 9], [3, 1, 0]], [[1, 1, 2], [5, 4, 4]]))
    assert ordered.rows.tolist() == [[9, 2, 4], [3, 0, 1]]
    assert ordered.scores.tolist() == [[2, 1, 1], [5, 4, 4]]


def test_order_does_not_depend_on_how_the_index_returned_ties():
    rng = np.random.default_rng(0)
    rows = np.argsort(rng.random((9, 8)), axis=1)
    scores = rng.integers(0, 3, (9, 8)).astype(np.float32)
    mixed = np.argsort(rng.random((9, 8)), axis=1)
    one = put_in_order(topk_of(rows, scores))
    two = put_in_order(
        topk_of(np.take_along_axis(rows, mixed, 1), np.take_along_axis(scores, mixed, 1))
    )
    np.testing.assert_array_equal(one.rows, two.rows)


def test_minus_infinity_is_no_prediction_but_zero_and_negative_scores_are():
    ordered = put_in_order(topk_of([[5, 6, 7, 8]], [[-INF, -0.5, 0.0, -INF]]))
    assert ordered.rows.tolist() == [[7, 6, -1, -1]]


def test_ordering_leaves_its_argument_alone():
    topk = topk_of([[1, 0]], [[0, 1]])
    put_in_order(topk)
    assert topk.rows.tolist() == [[1, 0]]


def test_scores_that_are_not_numbers_are_refused():
    with pytest.raises(DataError, match="NaN"):
        put_in_order(topk_of([[0, 1]], [[1, float("nan")]]))


def test_filtered_predictions_leave_and_the_rest_moves_up():
    topk = topk_of([[7, 3, 5], [7, 3, 5]], [[-0.1, -0.2, -0.3]] * 2)
    kept = drop_filtered(topk, np.array([[1, 3], [1, 7], [0, 4]]), 9)
    assert kept.rows.tolist() == [[7, 3, 5], [5, -1, -1]]
    # Negative cosines: a filtered score of 0 would have come first.
    np.testing.assert_array_equal(kept.scores[1], np.array([-0.3, -INF, -INF], np.float32))
    assert topk.rows[1].tolist() == [7, 3, 5]


def test_an_unknown_id_keeps_its_place_when_filters_move_others_up():
    topk = topk_of([[2, -1, 4]], [[0, -1, -2]])  # -1 with a score: a label nobody knows
    assert drop_filtered(topk, np.array([[0, 2]]), 5).rows.tolist() == [[-1, 4, -1]]
