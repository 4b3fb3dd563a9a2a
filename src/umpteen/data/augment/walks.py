"""Random walks with restart on the query-label graph, in the place of counted co-occurrence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.augment.graph import Dropped, GraphOptions, stack, thresholded, with_own
from umpteen.types import Progress, RowIndices

DELTA = 0.1
BLOCK_VISITS = 1 << 24
"""Visits that are kept at once."""


def label_targets(
    targets: sp.csr_matrix, labels: RowIndices, options: GraphOptions, progress: Progress
) -> tuple[sp.csr_matrix, Dropped]:
    """Compute target l of label j: visits of l over the most visits, above delta (0.1).

    A walk from j takes ``walk_steps`` steps; a step goes from the present label, or with
    probability ``restart`` from j, to one of its queries and on to one of that query's labels. With
    restart 1 and many steps the target tends to a G_jl / G_jj in which a query with m labels counts
    1 / m. The limits on counts are not needed here and not used.
    """
    delta = DELTA if options.delta is None else options.delta
    found = []
    for some, visits in visits_by_label(targets, labels, options, progress):
        most = np.maximum.reduceat(visits.data, visits.indptr[:-1]) if len(some) else visits.data
        shares = visits.data / np.repeat(most, np.diff(visits.indptr))
        found.append(with_own(thresholded(visits, shares, delta), some))
    return stack(found, targets.shape[1]), Dropped()


def visited_neighbours(
    targets: sp.csr_matrix,
    most: int,
    options: GraphOptions = GraphOptions(),  # noqa: B008 - frozen
    progress: Progress = lambda done, total: None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the labels that each label's walk visits most, itself first: ECLARE's label graph.

    The weight of l for j is V_jl / sqrt(sum of row j of V x sum of column l of V), where V has the
    visits that were kept.

    Args:
        targets: CSR (N, L) of the training queries, without filter pairs.
        most: M, neighbours of a label with itself.
        options: Steps, restart and seed.
        progress: Told of progress.

    Returns:
        Label rows (L, M) and weights (L, M); places left over hold the label itself with weight 0.
    """
    n_labels = targets.shape[1]
    labels = np.arange(n_labels)
    own = sp.csr_matrix((n_labels, n_labels), dtype=np.float32)  # 1 where a walk never came home
    blocks = [visits for _, visits in visits_by_label(targets, labels, options, progress)]
    visits = stack(blocks, n_labels).astype(np.float32)
    own.setdiag((visits.diagonal() == 0).astype(np.float32))
    visits = sp.csr_matrix(visits + own)
    visits.eliminate_zeros()
    rows = np.repeat(labels, np.diff(visits.indptr))
    # The label itself first, then by visits and row.
    order = np.lexsort((visits.indices, -visits.data, visits.indices != rows, rows))
    place = np.arange(len(rows)) - visits.indptr[:-1][rows]  # rows ascend in the order too
    kept = place < most
    found = np.repeat(labels[:, None], most, axis=1).astype(np.int32)
    counts = np.zeros((n_labels, most), np.float64)
    found[rows[kept], place[kept]] = visits.indices[order][kept]
    counts[rows[kept], place[kept]] = visits.data[order][kept]
    columns = np.bincount(found.ravel(), counts.ravel(), minlength=n_labels)
    weights = counts / np.sqrt(counts.sum(axis=1, keepdims=True) * columns[found])
    return found, weights.astype(np.float32)


def visits_by_label(
    targets: sp.csr_matrix, labels: RowIndices, options: GraphOptions, progress: Progress
) -> Iterator[tuple[RowIndices, sp.csr_matrix]]:
    """Yield some of the labels and how often the walk of each came to every label, CSR (some, L).

    A label without queries has one visit, to itself.
    """
    walker = _Walker(targets, options)
    size = max(1, BLOCK_VISITS // options.walk_steps)
    for start in range(0, len(labels), size):
        some = labels[start : start + size]
        yield some, walker.visits(some, start)
        progress(start + len(some), len(labels))


class _Walker:
    def __init__(self, targets: sp.csr_matrix, options: GraphOptions) -> None:
        self._queries = sp.csr_matrix(targets)
        by_label = self._queries.T.tocsr()
        self._label_starts = by_label.indptr.astype(np.int64)
        self._queries_of = by_label.indices
        self._query_starts = self._queries.indptr.astype(np.int64)
        self._labels_of = self._queries.indices
        self._options = options

    def visits(self, labels: RowIndices, first: int) -> sp.csr_matrix:
        """Return how often a walk from each label came to each.

        CSR (R, L), at least one in each row.
        """
        steps, restart = self._options.walk_steps, self._options.restart
        rng = np.random.default_rng([self._options.seed, 0x3A, first])
        # A label without queries has nowhere to go: it is its own only visit.
        rows = np.flatnonzero(np.diff(self._label_starts)[labels])
        here = start = labels[rows]
        seen = np.empty((steps, len(rows)), np.int32)
        for step in range(steps):
            here = np.where(rng.random(len(rows)) < restart, start, here)
            queries = _one_of(self._label_starts, self._queries_of, here, rng)
            here = _one_of(self._query_starts, self._labels_of, queries, rng)
            seen[step] = here
        n_labels = self._queries.shape[1]
        keys = (rows * n_labels + seen).ravel()
        alone = np.setdiff1d(np.arange(len(labels)), rows)
        keys, counts = np.unique(
            np.concatenate([keys, alone * n_labels + labels[alone]]), return_counts=True
        )
        offsets = np.searchsorted(keys, np.arange(len(labels) + 1) * n_labels)
        return sp.csr_matrix((counts, keys % n_labels, offsets), shape=(len(labels), n_labels))


def _one_of(
    starts: RowIndices, entries: np.ndarray, rows: RowIndices, rng: np.random.Generator
) -> RowIndices:
    """Return one entry of each row, drawn evenly; every row has one."""
    lengths = starts[rows + 1] - starts[rows]
    drawn = (rng.random(len(rows)) * lengths).astype(np.int64)
    return entries[starts[rows] + drawn].astype(np.int64)
