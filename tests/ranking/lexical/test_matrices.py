"""Row operations equal dense ones."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.ranking.lexical.matrices import (
    CsrArrays,
    count_terms,
    keep_largest,
    matrix_product,
    round_to_half,
    row_product,
    unit_rows,
)

RNG = np.random.default_rng(3)


def sparse(n, m, share=0.5):
    values = RNG.integers(-4, 5, size=(n, m)) / 4  # many ties
    return sp.csr_matrix(np.where(RNG.random((n, m)) < share, values, 0).astype(np.float32))


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_the_largest_magnitudes_of_each_row_are_kept_and_ties_keep_the_first(limit):
    matrix = sparse(19, 23)
    matrix.data[RNG.random(matrix.nnz) < 0.1] = 0.0
    found = keep_largest(matrix, limit)
    for row in range(19):
        own = matrix[row]
        order = sorted(range(own.nnz), key=lambda i: (-abs(own.data[i]), i))
        kept = sorted(order[:limit])
        np.testing.assert_array_equal(found[row].indices, own.indices[kept])
        np.testing.assert_array_equal(found[row].data, own.data[kept])


def test_keep_largest_of_nothing():
    assert keep_largest(sp.csr_matrix((0, 5)), 2).shape == (0, 5)
    assert keep_largest(sp.csr_matrix((3, 5)), 2).nnz == 0


def test_count_terms_equals_a_dense_count():
    rows, columns = RNG.integers(0, 6, 50), RNG.integers(0, 4, 50)
    expected = np.zeros((8, 4))
    np.add.at(expected, (rows, columns), 1)
    found = count_terms(rows, columns, (8, 4))
    found.check_format(full_check=True)
    assert found.has_sorted_indices
    np.testing.assert_array_equal(found.toarray(), expected)
    assert count_terms(rows[:0], columns[:0], (2, 0)).shape == (2, 0)


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e18])
@pytest.mark.parametrize("n", [1, 9])
def test_unit_rows_have_length_one_or_are_empty(n, scale):
    dense = np.where(RNG.random((n, 7)) < 0.5, RNG.normal(size=(n, 7)), 0)
    dense[0, 0] = 1.0
    if n > 1:
        dense[3] = 0
    found = unit_rows(sp.csr_matrix((dense * scale).astype(np.float32))).toarray()
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(found, dense / np.maximum(lengths, 1e-30), rtol=1e-5, atol=1e-7)


def test_rounding_to_half_is_finite_and_stable():
    values = np.array([1e9, -1e9, 0.1, 1e-12], np.float32)
    rounded = round_to_half(values)
    assert np.isfinite(rounded).all()
    np.testing.assert_array_equal(round_to_half(rounded), rounded)


@pytest.mark.parametrize("shape", [(7, 11, 13), (1, 5, 900), (3, 1, 2), (4, 6, 1)])
def test_a_product_is_that_of_the_dense_matrices(shape):
    n, inner, m = shape
    left, right = sparse(n, inner), sparse(inner, m)
    wanted = left.toarray() @ right.toarray()
    np.testing.assert_array_equal(matrix_product(left, right).toarray(), wanted)
    np.testing.assert_array_equal(row_product(left[0], right).toarray(), wanted[:1])
    wide = right.astype(np.float64)  # another type: scipy's own product
    np.testing.assert_array_equal(matrix_product(left, wide).toarray(), wanted)


def test_a_product_with_nothing_is_empty():
    nothing = sp.csr_matrix((3, 4), dtype=np.float32)
    assert matrix_product(nothing, sparse(4, 5)).nnz == 0
    assert row_product(nothing[0], sparse(4, 5)).nnz == 0


@pytest.mark.parametrize("n_columns", [9, 10_000])  # a dense row, and sorted columns
def test_values_of_a_column_are_added_in_their_order(n_columns):
    columns = RNG.integers(0, 9, 40)
    values = RNG.standard_normal(40).astype(np.float32)
    found = CsrArrays.of_row(columns, values, n_columns)
    wanted = np.bincount(columns, values, minlength=n_columns).astype(np.float32)
    np.testing.assert_array_equal(found.toarray()[0], wanted)
    assert (np.diff(found.indices) > 0).all()
