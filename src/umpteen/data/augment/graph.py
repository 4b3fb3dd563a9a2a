"""Which labels come together: counts of y^T y in blocks of bounded work. No texts here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.types import Progress, RowIndices

BLOCK_WORK = 1 << 25
"""Pairs of labels that are counted at once; a block takes some ten bytes for each."""


@dataclass(frozen=True)
class GraphOptions:
    """What the ways to make targets share; each reads what it needs."""

    delta: float | None = None
    """A target must be above this; None for the method's own."""
    max_positives: int = 1000
    """Queries with more positives are left out of the counts; 0 for no limit."""
    max_queries: int = 10_000
    """A more frequent label is counted on this many of its queries, drawn; 0 for no limit."""
    walk_steps: int = 400
    """Steps of each label's random walk."""
    restart: float = 0.8
    """How often a step starts again from the label."""
    seed: int = 17
    """Decides every draw."""


@dataclass(frozen=True)
class Dropped:
    """What the limits left out of the counts."""

    queries: int = 0
    """Queries with too many positives."""
    entries: int = 0
    """Their relevance entries."""
    labels_without: int = 0
    """Labels that only such queries have; they keep the target of themselves alone."""
    labels_drawn: int = 0
    """Labels counted on a part of their queries."""
    entries_drawn: int = 0
    """The relevance entries that part leaves out."""


class LabelTargets(Protocol):
    """A way to make targets; laws in ``tests/contracts/test_augmentations.py``."""

    def __call__(
        self, targets: sp.csr_matrix, labels: RowIndices, options: GraphOptions, progress: Progress
    ) -> tuple[sp.csr_matrix, Dropped]:
        """Compute soft targets of label texts.

        Args:
            targets: CSR (N, L) of the training queries, without filter pairs.
            labels: (R,) label rows, each once.
            options: Limits and constants.
            progress: Told of progress.

        Returns:
            CSR (R, L) float32 in (0, 1] with sorted columns, something at the label itself (1, but
            for ``glas``); and what the limits dropped.
        """


class Counts:
    """How many queries each label shares with each other, (G)_jl of G = y^T y, by rows of G.

    Relevance above 0 counts as 1. Work and memory are bounded by the limits and by blocks.

    Args:
        targets: CSR (N, L), without filter pairs.
        options: The limits and the seed.
    """

    def __init__(self, targets: sp.csr_matrix, options: GraphOptions) -> None:
        self._queries = _ones(targets)
        self._options = options
        self.dropped = Dropped()
        if options.max_positives:
            self._leave_out_long(options.max_positives)
        self._by_label = self._queries.T.tocsr()  # (L, N)
        self.frequencies = np.diff(self._by_label.indptr).astype(np.int64)
        """(L,) queries that count for each label, before any is drawn."""

    def blocks(self, labels: RowIndices) -> Iterator[tuple[slice, sp.csr_matrix, RowIndices]]:
        """Yield counts of some labels, a block at a time.

        Args:
            labels: (R,) label rows, each once.

        Yields:
            The block's place in ``labels``; CSR counts (rows of the block, L), columns not sorted;
            and (rows of the block,) how many queries each row was counted on.
        """
        lists = self._drawn(labels)  # (R, N)
        lengths = np.diff(self._queries.indptr)
        per_entry = np.concatenate([[0], np.cumsum(lengths[lists.indices], dtype=np.int64)])
        work = per_entry[lists.indptr]  # (R + 1,) pairs before each row
        start = 0
        while start < len(labels):
            stop = int(np.searchsorted(work, work[start] + BLOCK_WORK, side="right")) - 1
            stop = min(max(stop, start + 1), len(labels))
            block = lists[start:stop]
            yield slice(start, stop), block @ self._queries, np.diff(block.indptr).astype(np.int64)
            start = stop

    def _leave_out_long(self, most: int) -> None:
        """Empty the queries that have more labels than this."""
        queries = self._queries
        lengths = np.diff(queries.indptr)
        long = lengths > most
        if not long.any():
            return
        keep = np.repeat(~long, lengths)
        offsets = np.concatenate([[0], np.cumsum(np.where(long, 0, lengths))])
        left = (queries.data[keep], queries.indices[keep], offsets)
        self._queries = sp.csr_matrix(left, shape=queries.shape)
        gone = (queries.getnnz(axis=0) > 0) & (self._queries.getnnz(axis=0) == 0)
        self.dropped = Dropped(int(long.sum()), int(lengths[long].sum()), int(gone.sum()))

    def _drawn(self, labels: RowIndices) -> sp.csr_matrix:
        """Return the queries of each label, (R, N); of frequent labels a random part."""
        lists = self._by_label[labels]
        lengths = np.diff(lists.indptr).astype(np.int64)
        most = self._options.max_queries
        large = np.flatnonzero(lengths > most) if most else np.zeros(0, np.int64)
        if not len(large):
            return lists
        rng = np.random.default_rng([self._options.seed, 0x6A])
        some = lists[large]
        rows = np.repeat(np.arange(len(large)), lengths[large])
        order = np.lexsort((rng.random(len(rows)), rows))
        rank = np.arange(len(rows)) - np.repeat(some.indptr[:-1], lengths[large])
        keep = np.ones(lists.nnz, bool)
        is_large = np.repeat(lengths > most, lengths)
        among = np.zeros(len(rows), bool)
        among[order[rank < most]] = True  # rows ascend, so the order stays in each row's range
        keep[is_large] = among
        kept = np.minimum(lengths, most)
        dropped = self.dropped
        self.dropped = Dropped(
            dropped.queries,
            dropped.entries,
            dropped.labels_without,
            len(large),
            int((lengths - kept).sum()),
        )
        offsets = np.concatenate([[0], np.cumsum(kept)])
        return sp.csr_matrix((lists.data[keep], lists.indices[keep], offsets), shape=lists.shape)


def with_own(values: sp.csr_matrix, labels: RowIndices, target: float = 1.0) -> sp.csr_matrix:
    """Return targets (R, L) with one value where a row meets its own label, columns sorted.

    Args:
        values: CSR (R, L); what it has at a row's own label is forgotten.
        labels: (R,) the label of each row.
        target: The value.
    """
    rows = np.repeat(np.arange(len(labels)), np.diff(values.indptr))
    own = values.indices == labels[rows]
    missing = np.setdiff1d(np.arange(len(labels)), rows[own])
    values.data[own] = target
    if len(missing):
        added = np.full(len(missing), target, np.float32)
        values = values + sp.csr_matrix((added, (missing, labels[missing])), shape=values.shape)
    values.sort_indices()
    return values


def thresholded(block: sp.csr_matrix, values: NDArray[np.float64], delta: float) -> sp.csr_matrix:
    """Return the block's entries with new values, those above delta alone: CSR float32."""
    keep = values > delta
    before = np.concatenate([[0], np.cumsum(keep)])
    offsets = before[block.indptr]
    kept = values[keep].astype(np.float32)
    return sp.csr_matrix((kept, block.indices[keep], offsets), shape=block.shape)


def stack(blocks: list[sp.csr_matrix], n_labels: int) -> sp.csr_matrix:
    """Stack blocks of rows; no blocks give a matrix without rows."""
    if not blocks:
        return sp.csr_matrix((0, n_labels), dtype=np.float32)
    return sp.csr_matrix(sp.vstack(blocks, format="csr"))


def _ones(targets: sp.csr_matrix) -> sp.csr_matrix:
    """Return the same entries as int32 ones; entries that are stored as 0 do not count."""
    matrix = sp.csr_matrix(targets)
    if (matrix.data == 0).any():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    data = np.ones(matrix.nnz, np.int32)
    return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)
