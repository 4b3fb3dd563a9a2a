"""Row operations on CSR matrices that scipy lacks or does slowly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import _sparsetools

from umpteen.data.csr import checked_csr
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS


def row_numbers(matrix: sp.csr_matrix) -> NDArray[np.int64]:
    """Return (nnz,) the row of each stored value."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


KINDS = [np.dtype(kind) for kind in (np.int32, np.int32, np.float32)]
"""Types of offsets, columns and values that products read without a copy."""
SORT_FACTOR = 32
"""Columns for each value above which sorting the values is faster than a dense row."""


@dataclass(frozen=True)
class CsrArrays:
    """The arrays of a CSR matrix alone: scipy checks each matrix, which takes longer than one text.

    ``top_k_of_rows`` and ``look_up`` read it like a matrix.
    """

    data: NDArray[np.float32]
    indices: NDArray[np.integer]
    indptr: NDArray[np.integer]
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Stored values."""
        return len(self.data)

    def toarray(self) -> NDArray[np.float32]:
        """Return the dense matrix."""
        parts = (self.data, self.indices, self.indptr)
        dense: NDArray[np.float32] = sp.csr_matrix(parts, shape=self.shape).toarray()
        return dense

    @classmethod
    def of_row(
        cls, columns: NDArray[np.int64], values: NDArray[np.floating], n_columns: int
    ) -> CsrArrays:
        """Add up the values of each column of a single row."""
        if SORT_FACTOR * len(columns) < n_columns:
            order = np.argsort(columns, kind="stable")
            ordered = columns[order]
            first = np.ones(len(ordered), bool)
            np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
            found = ordered[first]
            sums = np.bincount(np.cumsum(first) - 1, values[order], minlength=len(found))
        else:
            sums = np.bincount(columns, values, minlength=n_columns)
            found = np.flatnonzero(sums != 0)  # several times faster on bools than on floats
            sums = sums[found]
        indptr = np.array([0, len(found)], np.int64)
        return cls(sums.astype(np.float32), found, indptr, (1, n_columns))


def row_product(row: sp.csr_matrix | CsrArrays, weights: sp.csr_matrix) -> CsrArrays:
    """Multiply one sparse row (1, V) with weights (V, L); columns in any order."""
    starts, stops = weights.indptr[row.indices], weights.indptr[row.indices + 1]
    parts = (weights.indptr, weights.indices, weights.data)
    bound = int((stops - starts).sum(dtype=np.int64))
    if [part.dtype for part in parts] != [*KINDS] or bound >= 2**31:
        places, lengths = places_of_rows(weights.indptr, row.indices)
        values = weights.data[places] * np.repeat(row.data, lengths)
        return CsrArrays.of_row(weights.indices[places], values, weights.shape[1])
    own = (np.array([0, len(row.indices)]), row.indices, row.data)
    left = [part.astype(kind, copy=False) for part, kind in zip(own, KINDS, strict=True)]
    indptr, indices = np.empty(2, np.int32), np.empty(bound, np.int32)
    data = np.empty(bound, np.float32)
    _sparsetools.csr_matmat(1, weights.shape[1], *left, *parts, indptr, indices, data)
    used = int(indptr[1])
    return CsrArrays(data[:used], indices[:used], indptr, (1, weights.shape[1]))


def matrix_product(left: sp.csr_matrix, right: sp.csr_matrix) -> sp.csr_matrix:
    """Return ``left @ right`` without the pass in which scipy counts the values of the result.

    The products that are added up bound their number; the rest of the room is given back.
    """
    bound = int((right.indptr[left.indices + 1] - right.indptr[left.indices]).sum(dtype=np.int64))
    arrays = [left.indptr, left.indices, left.data, right.indptr, right.indices, right.data]
    if bound >= 2**31 or [array.dtype for array in arrays] != [*KINDS, *KINDS]:
        return left @ right
    shape = (left.shape[0], right.shape[1])
    indptr, indices = np.empty(shape[0] + 1, np.int32), np.empty(bound, np.int32)
    data = np.empty(bound, np.float32)
    _sparsetools.csr_matmat(*shape, *arrays, indptr, indices, data)
    used = int(indptr[-1])
    return sp.csr_matrix((data[:used].copy(), indices[:used].copy(), indptr), shape=shape)


def places_of_rows(
    indptr: NDArray[np.integer], rows: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find where the values of some CSR rows are stored.

    Args:
        indptr: Of the matrix.
        rows: (M,) rows, in any order.

    Returns:
        Positions of their values, row after row, and (M,) how many each row has.
    """
    starts = indptr[rows].astype(np.int64)
    lengths = indptr[rows + 1] - starts
    shifts = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return np.arange(len(shifts)) + shifts, lengths


def count_terms(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> sp.csr_matrix:
    """Count how often each (row, column) occurs; columns of the result are sorted."""
    width = max(1, shape[1])
    keys = rows * np.int64(width) + columns
    keys.sort()
    first = np.ones(len(keys) + 1, bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:-1])
    starts = np.flatnonzero(first)
    counts = (starts[1:] - starts[:-1]).astype(np.float32)
    keys = keys[starts[:-1]]
    if shape[0] == 1:
        indptr, indices = np.array([0, len(keys)], np.int64), keys
    else:
        indptr = np.searchsorted(keys, np.arange(shape[0] + 1) * width)
        indices = keys % width
    if max(len(keys), width) < 2**31:  # what scipy would choose, without its checks
        indptr, indices = indptr.astype(np.int32), indices.astype(np.int32)
    return sp.csr_matrix((counts, indices, indptr), shape=shape)


def keep_largest(matrix: sp.csr_matrix, max_per_row: int) -> sp.csr_matrix:
    """Keep the values of largest magnitude in each row; ties keep the first stored ones."""
    counts = np.diff(matrix.indptr)
    if not len(counts) or counts.max() <= max_per_row:
        return matrix
    return keep_values(matrix, largest_of_rows(matrix, max_per_row))


def keep_values(matrix: sp.csr_matrix, kept: NDArray[np.bool_]) -> sp.csr_matrix:
    """Keep the stored values at which ``kept`` (nnz,) is true."""
    indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)


def largest_of_rows(matrix: sp.csr_matrix, max_per_row: int) -> NDArray[np.bool_]:
    """Return (nnz,) which values are the largest of their row; ties go to the first stored ones."""
    counts = np.diff(matrix.indptr)
    long = counts > max_per_row
    rows = row_numbers(matrix)
    kept: NDArray[np.bool_] = ~long[rows]
    if not max_per_row:
        return kept
    places = np.flatnonzero(~kept)
    # Bits of non-negative floats are ordered like the floats. One int64 sort, no argsort.
    sizes = np.abs(matrix.data[places].astype(np.float32)).view(np.int32).astype(np.int64)
    owners = rows[places]
    keys = (owners << 32) | (0x7FFFFFFF - sizes)
    starts = np.cumsum(counts[long]) - counts[long]
    thresholds = np.zeros(len(counts), np.int64)
    ordered = np.sort(keys)
    thresholds[long] = 0x7FFFFFFF - (ordered[starts + max_per_row - 1] & 0xFFFFFFFF)
    above = sizes > thresholds[owners]
    tied = sizes == thresholds[owners]
    room = max_per_row - np.bincount(owners[above], minlength=len(counts))
    before = np.cumsum(tied) - tied
    first = np.zeros(len(counts), np.int64)
    first[long] = before[starts]
    kept[places] = above | (tied & (before - first[owners] < room[owners]))
    return kept


def unit_rows(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """Scale every row to length one; rows of zeros stay as they are."""
    parts = (unit_values(matrix), matrix.indices, matrix.indptr)
    return sp.csr_matrix(parts, shape=matrix.shape)


def unit_values(matrix: sp.csr_matrix) -> NDArray[np.float32]:
    """Return (nnz,) the values of ``unit_rows``."""
    data = matrix.data.astype(np.float64)
    if matrix.shape[0] == 1:
        return (data / max(float(data @ data) ** 0.5, 1e-150)).astype(np.float32)
    squares = np.bincount(row_numbers(matrix), weights=data * data, minlength=matrix.shape[0])
    lengths = np.sqrt(np.maximum(squares, 1e-300))
    return (data / np.repeat(lengths, np.diff(matrix.indptr))).astype(np.float32)


def save_csr(matrix: sp.csr_matrix, folder: Path) -> None:
    """Write a matrix into an existing folder; values in half precision."""
    np.save(folder / "weights.npy", matrix.data.astype(np.float16), allow_pickle=False)
    for name in ("indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(matrix, name), allow_pickle=False)


def load_csr(folder: Path, shape: tuple[int, int]) -> sp.csr_matrix:
    """Read what ``save_csr`` wrote.

    Args:
        folder: The folder.
        shape: The expected shape.

    Returns:
        The matrix, values in single precision.

    Raises:
        RunError: If a file is missing or does not match the shape.
    """
    try:
        data, indices, indptr = (
            np.load(folder / f"{name}.npy", allow_pickle=False)
            for name in ("weights", "indices", "indptr")
        )
        matrix = checked_csr(data.astype(np.float32), indices, indptr, shape)
        if not np.isfinite(matrix.data).all():
            raise ValueError("a weight is not finite")
    except LOAD_ERRORS as error:
        raise RunError(
            f"{folder} is damaged ({error}); run `umpteen fit-ensemble` again"
        ) from error
    return matrix


def round_to_half(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to half precision, in which weights are saved; values beyond its range are clipped."""
    limit = float(np.finfo(np.float16).max)
    return np.clip(values, -limit, limit).astype(np.float16).astype(np.float32)
