"""Columns of a sparse matrix that grow one by one: an inverted index in a few segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.ranking.lexical.matrices import CsrArrays, keep_largest, row_product

GROWTH = 16
"""A segment is merged into the one before unless that is this many times larger."""


@dataclass(frozen=True)
class Segment:
    """Some columns as an inverted index over the terms that occur in them."""

    by_row: sp.csr_matrix
    """(A, V') one row per column of the index, V' at the time of writing."""
    terms: NDArray[np.int64]
    """(U,) sorted terms that occur."""
    postings: sp.csr_matrix
    """(U, A)."""

    @classmethod
    def of(cls, by_row: sp.csr_matrix, max_postings: int | None = None) -> Segment:
        """Build the inverted index of rows; each term keeps its ``max_postings`` largest values."""
        terms, places = np.unique(by_row.indices, return_inverse=True)
        parts = (by_row.data, places, by_row.indptr)
        compact = sp.csr_matrix(parts, shape=(by_row.shape[0], len(terms)))
        postings = sp.csr_matrix(compact.T)
        if max_postings is not None:
            postings = keep_largest(postings, max_postings)
        return cls(by_row, terms.astype(np.int64), postings)

    def __len__(self) -> int:
        return int(self.by_row.shape[0])

    def joined(self, other: Segment, max_postings: int | None = None) -> Segment:
        """Return one segment with the columns of both."""
        a, b = self.by_row, other.by_row
        parts = (
            np.concatenate([a.data, b.data]),
            np.concatenate([a.indices, b.indices]),
            np.concatenate([a.indptr, a.indptr[-1] + b.indptr[1:]]),
        )
        shape = (a.shape[0] + b.shape[0], max(a.shape[1], b.shape[1]))
        return Segment.of(sp.csr_matrix(parts, shape=shape), max_postings)

    def product(self, queries: sp.csr_matrix) -> sp.csr_matrix | CsrArrays:
        """Return (B, A) ``queries @ columns``."""
        places = np.searchsorted(self.terms, queries.indices)
        hits = places < len(self.terms)
        hits[hits] = self.terms[places[hits]] == queries.indices[hits]
        values, terms = queries.data[hits], places[hits]
        shape = (queries.shape[0], len(self.terms))
        if shape[0] == 1:
            one = CsrArrays(values, terms, np.array([0, len(terms)]), shape)
            return row_product(one, self.postings)
        indptr = np.concatenate([[0], np.cumsum(hits)])[queries.indptr]
        return sp.csr_matrix((values, terms, indptr), shape) @ self.postings


@dataclass(frozen=True)
class GrowingColumns:
    """An immutable matrix (V, A) of sparse columns; ``extended`` shares segments with it.

    Segments shrink by ``GROWTH`` or more from one to the next, which bounds their number by the
    logarithm of A. Adding one column costs O(log A) times its own size, amortized.
    """

    segments: tuple[Segment, ...] = ()
    max_postings: int | None = None
    """Values of a term that a segment's index keeps, the largest; None keeps all."""

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    def extended(self, rows: sp.csr_matrix) -> GrowingColumns:
        """Return a matrix with more columns at the end.

        Args:
            rows: (A', V') one row per new column; V' may be larger than before.

        Returns:
            The new matrix; this one does not change.
        """
        if not rows.shape[0]:
            return self
        segments = list(self.segments)
        newest = Segment.of(rows, self.max_postings)
        while segments and len(segments[-1]) < GROWTH * len(newest):
            newest = segments.pop().joined(newest, self.max_postings)
        return GrowingColumns((*segments, newest), self.max_postings)

    def product(self, queries: sp.csr_matrix) -> sp.csr_matrix | CsrArrays:
        """Return (B, A) ``queries @ columns``; columns of a row in any order.

        Args:
            queries: (B, V').

        Returns:
            CSR, or its arrays alone for a single query.
        """
        made = [segment.product(queries) for segment in self.segments]
        if not made:
            return sp.csr_matrix((queries.shape[0], 0), dtype=np.float32)
        if len(made) == 1:
            return made[0]
        if queries.shape[0] > 1:
            return sp.hstack(made, format="csr")
        starts = np.cumsum([0, *map(len, self.segments)])
        columns = [part.indices + start for part, start in zip(made, starts, strict=False)]
        values = np.concatenate([part.data for part in made])
        indptr = np.array([0, len(values)], np.int64)
        return CsrArrays(values, np.concatenate(columns), indptr, (1, int(starts[-1])))
