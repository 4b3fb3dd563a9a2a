"""Label rows collected query by query in flat arrays, checked in blocks and made into a matrix."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.formats.lines import shown
from umpteen.data.growing_array import GrowingArray, forget
from umpteen.errors import DataError

Unit = Literal["line", "row"]
ROWS_IN_MEMORY = 1 << 18
HEAD = 8
"""Rows whose labels are kept to be shown."""


class TargetRows:
    """The positives of one split while its file is read.

    Flat arrays of 8 + 4 bytes per positive and 16 per query; no Python lists are kept. After
    ``ROWS_IN_MEMORY`` queries they are checked and moved to files. What can be checked for all
    positives of a block at once is checked in array code.
    """

    def __init__(self, path: Path, *, unit: Unit = "line", column: str | None = None) -> None:
        self.path = path
        self.unit: Unit = unit
        self.column = column
        self._begin_block()
        self._stored = 0
        self._head: list[list[int]] = []
        self._largest = (-1, 0)
        """The largest label of the stored rows, and its place."""
        self._columns, self._values = GrowingArray(np.int32), GrowingArray(np.float32)
        self._offsets = GrowingArray(np.int64)
        self.repeated = 0
        """Labels that were there twice in a row; known after ``matrix``."""

    def _begin_block(self) -> None:
        self._labels = array("q")
        self._relevance = array("f")
        self._lengths = array("q")
        self._places = array("q")

    def __len__(self) -> int:
        return self._stored + len(self._lengths)

    def error(self, message: str, place: int, column: str | None = None) -> DataError:
        """Return an error at a line or row of this file."""
        where: dict[str, Any] = {self.unit: place}
        return DataError(message, path=shown(self.path), column=column, **where)

    def add(self, labels: Sequence[int], relevance: Sequence[float] | None, place: int) -> None:
        """Take the positives of the next query.

        Args:
            labels: Label rows.
            relevance: As many relevances; None for ones.
            place: Line or row of the file, for messages.

        Raises:
            DataError: If a number is too large to be a label or a relevance, or counts differ.
        """
        if relevance is not None and len(relevance) != len(labels):
            raise self.error(
                f"{len(labels)} labels but {len(relevance)} relevances; there must be as many",
                place,
                self.column,
            )
        try:
            self._labels.extend(labels)
            self._relevance.extend([1.0] * len(labels) if relevance is None else relevance)
        except OverflowError as error:
            raise self.error(f"a number is too large ({error})", place, self.column) from error
        self._lengths.append(len(labels))
        self._places.append(place)
        if len(self._lengths) >= ROWS_IN_MEMORY:
            self._store()

    def labels_of(self, row: int) -> list[int]:
        """Return the label rows of one of the first queries, each once, in the file's order."""
        if self._head:
            return self._head[row]
        start = sum(self._lengths[:row])
        return list(dict.fromkeys(self._labels[start : start + self._lengths[row]]))

    def matrix(self, n_labels: int) -> sp.csr_matrix:
        """Return the checked CSR matrix (N, L), float32, columns sorted.

        Returns:
            The matrix. A label that is twice in a row is there once, with its largest relevance.

        Raises:
            DataError: If there are no rows or no positives, a label is out of range, or a relevance
                is not in (0, 1].
        """
        if not len(self):
            raise DataError("there are no rows; at least one is needed", path=shown(self.path))
        if not self._stored:
            found = self._block(n_labels)
        else:
            self._store()
            largest, place = self._largest
            if largest >= n_labels:
                raise self.error(_out_of_range(largest, n_labels), place, self.column)
            found = self._mapped(n_labels)
        if not found.nnz:
            raise DataError(
                "no row has any label; at least one positive is needed", path=shown(self.path)
            )
        return found

    def _block(self, n_labels: int | None) -> sp.csr_matrix:
        """Return the rows in memory as a checked matrix; None for labels that are not counted."""
        labels = np.frombuffer(self._labels, np.int64)
        relevance = np.frombuffer(self._relevance, np.float32).copy()
        offsets = np.concatenate([[0], np.cumsum(np.frombuffer(self._lengths, np.int64))])
        n = int(labels.max(initial=0)) + 1 if n_labels is None else n_labels
        outside = np.flatnonzero((labels < 0) | (labels >= n))
        if len(outside):
            raise self._at(_out_of_range(labels[outside[0]], n_labels), outside[0], offsets)
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(~((relevance > 0) & (relevance <= 1)))
        if len(wrong):
            raise self._at(
                f"relevance {relevance[wrong[0]]:g} is not in (0, 1]; leave a label out "
                "instead of giving it 0, and divide larger values by the largest",
                wrong[0],
                offsets,
            )
        matrix = sp.csr_matrix((relevance, labels, offsets), shape=(len(self._lengths), n))
        return self._without_repeats(matrix)

    def _store(self) -> None:
        """Check the rows in memory and move them to files."""
        if not self._stored:
            self._head = [self.labels_of(row) for row in range(min(HEAD, len(self._lengths)))]
            self._offsets.extend(np.zeros(1, np.int64))
        if not len(self._lengths):
            return
        block = self._block(None)
        if block.nnz and block.indices.max() > self._largest[0]:
            place = int(block.indices.argmax())
            row = int(np.searchsorted(block.indptr, place, side="right")) - 1
            self._largest = int(block.indices[place]), self._places[row]
        self._offsets.extend(self._columns.length + block.indptr[1:].astype(np.int64))
        self._columns.extend(np.minimum(block.indices, np.iinfo(np.int32).max))
        self._values.extend(block.data)
        self._stored += len(self._lengths)
        self._begin_block()

    def _mapped(self, n_labels: int) -> sp.csr_matrix:
        """Return the stored rows as a matrix whose arrays lie in files."""
        columns, offsets = self._columns.finish(), self._offsets.finish()
        if len(columns) <= np.iinfo(np.int32).max:
            offsets = _converted(offsets, np.dtype(np.int32))
        else:  # both arrays must be of one type
            columns = _converted(columns, np.dtype(np.int64))
        parts = (self._values.finish(), columns, offsets)
        matrix = sp.csr_matrix(parts, shape=(self._stored, n_labels))
        matrix.has_sorted_indices = matrix.has_canonical_format = True
        return matrix

    def notes(self) -> list[str]:
        """Return what ``matrix`` left out."""
        if not self.repeated:
            return []
        plural = "" if self.repeated == 1 else "s"
        return [
            f"{shown(self.path)}: {self.repeated:,} label{plural} twice in a row, kept once "
            f"(first in {self.unit} {self._first_repeated})"
        ]

    def _without_repeats(self, matrix: sp.csr_matrix) -> sp.csr_matrix:
        """Keep each label of a row once, with its largest relevance; count the others."""
        matrix.sort_indices()
        if matrix.has_canonical_format:  # almost always, and then without arrays of its size
            return matrix
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        order = np.lexsort((-matrix.data, matrix.indices, rows))
        rows, columns, data = rows[order], matrix.indices[order], matrix.data[order]
        same = np.zeros(len(rows), bool)
        same[1:] = (rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])
        if not self.repeated and same.any():
            self._first_repeated = self._places[int(rows[same][0])]
        self.repeated += int(same.sum())
        counts = np.bincount(rows[~same], minlength=matrix.shape[0])
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_matrix((data[~same], columns[~same], offsets), shape=matrix.shape)

    def _at(self, message: str, position: int, offsets: NDArray[np.int64]) -> DataError:
        row = int(np.searchsorted(offsets, position, side="right")) - 1
        return self.error(message, self._places[row], self.column)


def _out_of_range(label: int, n_labels: int | None) -> str:
    known = "" if n_labels is None else f"there are {n_labels} labels, "
    last = "" if n_labels is None else f" to {n_labels - 1}"
    return f"label {label} is out of range; {known}numbered from 0{last}"


def _converted(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    found = GrowingArray(dtype)
    for start in range(0, len(array), ROWS_IN_MEMORY):
        found.extend(array[start : start + ROWS_IN_MEMORY].astype(dtype))
        forget(array)
    return found.finish()


def first_repeat(matrix: sp.csr_matrix) -> int:
    """Return the first row that holds a column twice, or -1; the columns must be sorted.

    Example:
        >>> first_repeat(sp.csr_matrix(([1, 1], [2, 2], [0, 0, 2]), shape=(2, 3)))
        1
    """
    same = np.flatnonzero(matrix.indices[1:] == matrix.indices[:-1]) + 1
    # Equal neighbours across a row's border are two rows with the same label.
    same = same[~np.isin(same, matrix.indptr)]
    return int(np.searchsorted(matrix.indptr, same[0], side="right")) - 1 if len(same) else -1
