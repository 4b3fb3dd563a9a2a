"""Random walks with restart on the query-label graph, in the place of counted co-occurrence."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

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
    walker = _Walker(targets, options)
    found = []
    size = max(1, BLOCK_VISITS // options.walk_steps)
    for start in range(0, len(labels), size):
        some = labels[start : start + size]
        visits = walker.visits(some, start)  # (rows of the block, L)
        most = np.maximum.reduceat(visits.data, visits.indptr[:-1]) if len(some) else visits.data
        shares = visits.data / np.repeat(most, np.diff(visits.indptr))
        found.append(with_own(thresholded(visits, shares, delta), some))
        progress(start + len(some), len(labels))
    return stack(found, targets.shape[1]), Dropped()


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
