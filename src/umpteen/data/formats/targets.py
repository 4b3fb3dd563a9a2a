"""Label rows collected query by query in flat arrays, checked together and made into a matrix."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.formats.lines import shown
from umpteen.errors import DataError

Unit = Literal["line", "row"]


class TargetRows:
    """The positives of one split while its file is read.

    Flat arrays of 8 + 4 bytes per positive and 16 per query; no Python lists are kept. What can be
    checked for all positives at once is checked in ``matrix``, in array code.
    """

    def __init__(self, path: Path, *, unit: Unit = "line", column: str | None = None) -> None:
        self.path = path
        self.unit: Unit = unit
        self.column = column
        self._labels = array("q")
        self._relevance = array("f")
        self._lengths = array("q")
        self._places = array("q")
        self.repeated = 0
        """Labels that were there twice in a row; known after ``matrix``."""

    def __len__(self) -> int:
        return len(self._lengths)

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

    def labels_of(self, row: int) -> list[int]:
        """Return the label rows of a query, each once, in the order of the file."""
        start = sum(self._lengths[:row])
        return list(dict.fromkeys(self._labels[start : start + self._lengths[row]]))

    def matrix(self, n_labels: int) -> sp.csr_matrix:
        """Return the checked CSR matrix (N, L), float32, columns sorted.

        Args:
            n_labels: How many labels there are.

        Returns:
            The matrix. A label that is twice in a row is there once, with its largest relevance.

        Raises:
            DataError: If there are no rows or no positives, a label is out of range, or a relevance
                is not in (0, 1].
        """
        if not len(self):
            raise DataError("there are no rows; at least one is needed", path=shown(self.path))
        labels = np.frombuffer(self._labels, np.int64)
        relevance = np.frombuffer(self._relevance, np.float32).copy()
        offsets = np.concatenate([[0], np.cumsum(np.frombuffer(self._lengths, np.int64))])
        if not len(labels):
            raise DataError(
                "no row has any label; at least one positive is needed", path=shown(self.path)
            )
        outside = np.flatnonzero((labels < 0) | (labels >= n_labels))
        if len(outside):
            raise self._at(
                f"label {labels[outside[0]]} is out of range; there are {n_labels} labels, "
                f"numbered 0 to {n_labels - 1}",
                outside[0],
                offsets,
            )
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(~((relevance > 0) & (relevance <= 1)))
        if len(wrong):
            raise self._at(
                f"relevance {relevance[wrong[0]]:g} is not in (0, 1]; leave a label out "
                "instead of giving it 0, and divide larger values by the largest",
                wrong[0],
                offsets,
            )
        matrix = sp.csr_matrix((relevance, labels, offsets), shape=(len(self), n_labels))
        return self._without_repeats(matrix)

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
        self.repeated = int(same.sum())
        if self.repeated:
            self._first_repeated = self._places[int(rows[same][0])]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows[~same], minlength=len(self)))])
        return sp.csr_matrix((data[~same], columns[~same], offsets), shape=matrix.shape)

    def _at(self, message: str, position: int, offsets: NDArray[np.int64]) -> DataError:
        row = int(np.searchsorted(offsets, position, side="right")) - 1
        return self.error(message, self._places[row], self.column)


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
