"""Sparse matrices whose arrays lie in files: checked, and counted in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.growing_array import forget

AT_ONCE = 1 << 22
"""Entries or rows of a block."""


def column_counts(matrix: sp.csr_matrix) -> NDArray[np.int64]:
    """Return (columns,) the entries of each column.

    Example:
        >>> column_counts(sp.csr_matrix(([1, 1], [2, 2], [0, 1, 2]), shape=(2, 3))).tolist()
        [0, 0, 2]
    """
    found = np.zeros(matrix.shape[1], np.int64)
    for start in range(0, matrix.nnz, AT_ONCE):
        found += np.bincount(matrix.indices[start : start + AT_ONCE], minlength=len(found))
        forget(matrix.indices)
    return found


def row_sizes(matrix: sp.csr_matrix) -> Iterator[NDArray[np.integer]]:
    """Yield the entries of each row, in blocks of rows."""
    for start in range(0, matrix.shape[0], AT_ONCE):
        yield np.diff(matrix.indptr[start : start + AT_ONCE + 1])
        forget(matrix.indptr)


def row_sums(matrix: sp.csr_matrix, weights: NDArray[np.int64], rows: slice) -> NDArray[np.int64]:
    """Return the sum of the weights of the columns of each row, modulo 2^64; values do not count.

    Args:
        matrix: (rows, columns).
        weights: (columns,).
        rows: Which rows.

    Example:
        >>> matrix = sp.csr_matrix([[1, 0], [0, 0], [5, 1]])
        >>> row_sums(matrix, np.array([2, 3]), slice(0, 3)).tolist()
        [2, 0, 5]
    """
    bounds = matrix.indptr[rows.start : rows.stop + 1].astype(np.int64)
    sums = np.zeros(bounds[-1] - bounds[0] + 1, np.int64)
    np.cumsum(weights[matrix.indices[bounds[0] : bounds[-1]]], out=sums[1:])
    forget(matrix.indptr)
    forget(matrix.indices)
    bounds -= bounds[0]
    found: NDArray[np.int64] = sums[bounds[1:]] - sums[bounds[:-1]]
    return found


def checked_csr(
    data: NDArray, indices: NDArray, indptr: NDArray, shape: tuple[int, int]
) -> sp.csr_matrix:
    """Return the matrix of three arrays.

    SciPy trusts them, and its own check misses offsets that overflow: a wrong one would read memory
    that is not the matrix's.

    Args:
        data: (nnz,) values.
        indices: (nnz,) columns.
        indptr: (rows + 1,) where each row starts.
        shape: Rows and columns.

    Returns:
        The matrix.

    Raises:
        ValueError: If the arrays are not those of such a matrix.

    Example:
        >>> import numpy as np
        >>> one = np.ones(1, np.int32)
        >>> checked_csr(one, 5 * one, np.array([0, 1]), (1, 3))
        Traceback (most recent call last):
        ValueError: a column is not in 0 to 2
    """
    rows, columns = shape
    for name, array in (("columns", indices), ("offsets", indptr)):
        if array.ndim != 1 or array.dtype.kind != "i" or not array.dtype.isnative:
            raise ValueError(f"{name} are {array.dtype} of shape {array.shape}, not whole numbers")
    if data.ndim != 1 or data.dtype.kind not in "biuf":
        raise ValueError(f"values are {data.dtype} of shape {data.shape}, not numbers")
    if len(indptr) != rows + 1 or len(indices) != len(data):
        raise ValueError(
            f"{len(indptr)} offsets, {len(indices)} columns and {len(data)} values do not fit "
            f"{rows} rows"
        )
    # Compared, not subtracted: a difference may overflow.
    if indptr[0] != 0 or indptr[-1] != len(indices) or bool((indptr[1:] < indptr[:-1]).any()):
        raise ValueError("offsets do not rise from 0 to the number of entries")
    if len(indices) and not (indices.min() >= 0 and indices.max() < columns):
        raise ValueError(f"a column is not in 0 to {columns - 1}")
    return sp.csr_matrix((data, indices, indptr), shape=shape)
