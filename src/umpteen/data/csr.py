"""Sparse matrices from arrays of a file, checked before compiled code sees them."""

from __future__ import annotations

import scipy.sparse as sp
from numpy.typing import NDArray


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
