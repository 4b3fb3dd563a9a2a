"""The label pool of a batch ("pick some labels"): who is in it, and who is positive in it.

Array code over the batch's own entries; the work grows with the pool, not with the number of
labels. No tokens and no vectors here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.types import Positives, RowIndices


@dataclass(frozen=True)
class Pool:
    """The labels one batch is trained on.

    The first ``n_text`` rows are for both heads; the rest (extra positives) are for the classifier
    alone, so their texts need not be encoded. NumPy arrays, or tensors on one device.
    """

    labels: Any
    """(C,) label rows, each once; the first n_text ascending, and the rest ascending."""
    n_text: int
    positives: Positives
    """(query position, pool position) of every relevant pair, whoever brought the label in."""
    ignored: Any
    """(M, 2) (query position, pool position) pairs that count neither way."""
    text: Pool | None = None
    """What ``with_text`` returns, where it was made beforehand."""

    @property
    def with_text(self) -> Pool:
        """The same pool without the labels that are for the classifier alone."""
        if self.n_text == len(self.labels):
            return self
        if self.text is not None:
            return self.text
        pairs = self.positives
        inside = pairs.cols < self.n_text
        return Pool(
            labels=self.labels[: self.n_text],
            n_text=self.n_text,
            positives=Positives(pairs.rows[inside], pairs.cols[inside], pairs.targets[inside]),
            ignored=self.ignored[self.ignored[:, 1] < self.n_text],
        )


class PoolSource(Protocol):
    """Interface for objects that choose the labels of a batch."""

    def build(
        self,
        queries: RowIndices,
        rng: np.random.Generator,
        negatives: NDArray[np.integer] | None = None,
    ) -> Pool:
        """Return the pool of a batch; nothing but the arguments decides it."""


class AllLabels:
    """Every label, for every batch: what an objective over the whole label space needs.

    Args:
        targets: CSR (N, L), filter pairs already removed.
        filters: (M, 2) (query row, label row) pairs that are neither positive nor negative.
    """

    def __init__(self, targets: sp.csr_matrix, filters: RowIndices) -> None:
        self._targets = targets
        self._filters = filter_matrix(filters, targets.shape)
        self._labels = np.arange(targets.shape[1])

    def build(
        self,
        queries: RowIndices,
        rng: np.random.Generator,
        negatives: NDArray[np.integer] | None = None,
    ) -> Pool:
        """Return all labels, with every positive and every filter pair of these queries."""
        return self.pairs(queries)

    def pairs(self, queries: RowIndices) -> Pool:
        """Return the same; nothing is drawn."""
        rows, cols, values = _entries(self._targets, queries)
        ignored_rows, ignored_cols, _ = _entries(self._filters, queries)
        return Pool(
            labels=self._labels,
            n_text=len(self._labels),
            positives=Positives(rows, cols, values),
            ignored=np.column_stack([ignored_rows, ignored_cols]),
        )


class PoolBuilder:
    """Draws pools from a training matrix.

    Args:
        targets: CSR (N, L), filter pairs already removed.
        filters: (M, 2) (query row, label row) pairs that are neither positive nor negative.
        positives_per_query: Up to this many positives are drawn for each query (beta).
        negatives_per_query: Hard negatives drawn for each query (eta), where mined ones are given.
        max_labels: Cap on the pool; 0 for none. Positives stay before hard negatives, and within
            each the labels that serve most queries stay.
        min_labels: A smaller pool is filled up to this, or to all there are, with labels that are
            drawn uniformly from the others; 0 for none. Not above the cap.
        extra_positives: Further positives per query for the classifier alone.
    """

    def __init__(
        self,
        targets: sp.csr_matrix,
        filters: RowIndices,
        *,
        positives_per_query: int,
        negatives_per_query: int,
        max_labels: int = 0,
        min_labels: int = 0,
        extra_positives: int = 0,
    ) -> None:
        self._targets = targets
        self._filters = filter_matrix(filters, targets.shape)
        self._beta = positives_per_query
        self._eta = negatives_per_query
        self._cap = max_labels
        self._least = min(min_labels, targets.shape[1])
        self._extra = extra_positives
        # Label row to pool position; only the batch's own entries are written and cleared again.
        self._position = np.full(targets.shape[1], -1, np.int64)

    def build(
        self,
        queries: RowIndices,
        rng: np.random.Generator,
        negatives: NDArray[np.integer] | None = None,
    ) -> Pool:
        """Draw the pool of a batch.

        Args:
            queries: (B,) query rows.
            rng: Decides the draws; nothing else does.
            negatives: (B, H) mined label rows of these queries, -1 where there is none.

        Returns:
            The pool, with positives recomputed against all of the targets.
        """
        rows, cols, values = _entries(self._targets, queries)
        rank = _random_rank(rows, rng)
        drawn = cols[rank < self._beta]
        hard = _draw_columns(negatives, self._eta, rng) if negatives is not None else cols[:0]
        base = _union(drawn, hard, self._cap)
        while len(base) < self._least:
            base = _fill(base, self._least, len(self._position), rng)
        extra = cols[:0]
        if self._extra:
            further = (rank >= self._beta) & (rank < self._beta + self._extra)
            extra = np.setdiff1d(cols[further], base)
        labels = np.concatenate([base, extra])
        self._position[labels] = np.arange(len(labels))
        places = self._position[cols]
        inside = places >= 0
        ignored_rows, ignored_cols, _ = _entries(self._filters, queries)
        ignored_places = self._position[ignored_cols]
        self._position[labels] = -1
        kept = ignored_places >= 0
        return Pool(
            labels=labels,
            n_text=len(base),
            positives=Positives(rows[inside], places[inside], values[inside]),
            ignored=np.column_stack([ignored_rows[kept], ignored_places[kept]]),
        )


def filter_matrix(filters: RowIndices, shape: tuple[int, int]) -> sp.csr_matrix:
    """Build a CSR matrix of the given shape from (M, 2) pairs.

    A pair that is listed twice is one.
    """
    ones = np.ones(len(filters), np.int8)
    return sp.csr_matrix((ones, (filters[:, 0], filters[:, 1])), shape=shape)


def _entries(
    matrix: sp.csr_matrix, queries: RowIndices
) -> tuple[RowIndices, RowIndices, NDArray[np.float32]]:
    """Return all stored entries of the given rows as (position in the batch, column, value)."""
    starts = matrix.indptr[queries].astype(np.int64)
    lengths = matrix.indptr[queries + 1].astype(np.int64) - starts
    rows = np.repeat(np.arange(len(queries)), lengths)
    before = np.cumsum(lengths) - lengths
    flat = np.arange(len(rows)) - before[rows] + starts[rows]
    return rows, matrix.indices[flat].astype(np.int64), matrix.data[flat]


def _random_rank(rows: RowIndices, rng: np.random.Generator) -> RowIndices:
    """Return a random order within each run of equal (ascending) rows.

    0, 1, 2, ... for each row.
    """
    order = np.lexsort((rng.random(len(rows)), rows))
    first = np.searchsorted(rows, rows)  # rows ascend, so the order keeps each row's own range
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - first
    return rank


def _draw_columns(table: NDArray[np.integer], n: int, rng: np.random.Generator) -> RowIndices:
    """Draw n distinct entries of each row; entries of -1 are never returned."""
    if n <= 0 or table.shape[1] == 0:
        return np.zeros(0, np.int64)
    keys = rng.random(table.shape)
    keys[table < 0] = 2.0
    n = min(n, table.shape[1])
    chosen = np.argpartition(keys, n - 1, axis=1)[:, :n]
    drawn = np.take_along_axis(table, chosen, axis=1).ravel().astype(np.int64)
    return drawn[drawn >= 0]


def _union(positives: RowIndices, negatives: RowIndices, cap: int) -> RowIndices:
    """Return the distinct labels, ascending.

    Over the cap, the most wanted ones (see PoolBuilder).
    """
    both = np.concatenate([positives, negatives])
    labels, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    if not cap or len(labels) <= cap:
        return labels
    positive = np.zeros(len(labels), bool)
    positive[inverse[: len(positives)]] = True
    order = np.lexsort((labels, -counts, ~positive))
    return np.sort(labels[order[:cap]])


def draws_to_fill(n_taken: int, wanted: int, n_labels: int) -> int:
    """Return how many labels to draw, with repetition, for the missing ones to be among them.

    Mostly.
    """
    missing = wanted - n_taken
    return min(4 * n_labels, missing * n_labels // (n_labels - n_taken) * 5 // 4) + 16


def _fill(taken: RowIndices, wanted: int, n_labels: int, rng: np.random.Generator) -> RowIndices:
    """Return labels (ascending) and others up to ``wanted``.

    The first new ones of a series of draws.
    """
    numbers = rng.random(draws_to_fill(len(taken), wanted, n_labels))
    drawn = np.minimum((numbers * n_labels).astype(np.int64), n_labels - 1)
    labels, first = np.unique(drawn, return_index=True)
    order = first[~np.isin(labels, taken, assume_unique=True)]
    return np.sort(np.concatenate([taken, drawn[np.sort(order)[: wanted - len(taken)]]]))
