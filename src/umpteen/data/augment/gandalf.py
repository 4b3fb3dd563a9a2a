"""Gandalf: targets of a label's text are labels that often come with it; strongest neighbours."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.augment.graph import Counts, Dropped, GraphOptions, stack, thresholded, with_own
from umpteen.types import Progress, RowIndices

DELTA = 0.1


def label_targets(
    targets: sp.csr_matrix, labels: RowIndices, options: GraphOptions, progress: Progress
) -> tuple[sp.csr_matrix, Dropped]:
    """Compute target l of label j: G_jl / G_jj where that is above delta (0.1), with G = y^T y.

    It is the share of j's queries that have l as well. A label without queries has itself alone.
    """
    delta = DELTA if options.delta is None else options.delta
    counts = Counts(targets, options)
    found = []
    for place, block, queries in counts.blocks(labels):
        # Entries exist only in rows with queries, so nothing is divided by 0.
        shares = block.data / np.repeat(queries, np.diff(block.indptr))
        found.append(with_own(thresholded(block, shares, delta), labels[place]))
        progress(place.stop, len(labels))
    return stack(found, targets.shape[1]), counts.dropped


def strongest_neighbours(
    targets: sp.csr_matrix,
    most: int,
    options: GraphOptions = GraphOptions(),  # noqa: B008 - frozen
    progress: Progress = lambda done, total: None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return each label's heaviest co-occurring labels, itself first.

    With weights that add up to 1.

    Args:
        targets: CSR (N, L) of the training queries, without filter pairs.
        most: M, neighbours of a label with itself.
        options: Limits of the counts and the least share (``delta``).
        progress: Told of progress.

    Returns:
        Label rows (L, M) and weights (L, M); places left over hold the label itself with weight 0.

    Example:
        >>> rows, weights = strongest_neighbours(sp.csr_matrix([[1.0, 1.0], [0.0, 1.0]]), 2)
        >>> rows.tolist(), weights[0].tolist()
        ([[0, 1], [1, 0]], [0.5, 0.5])
    """
    n_labels = targets.shape[1]
    labels = np.arange(n_labels)
    graph, _ = label_targets(targets, labels, options, progress)
    rows = np.repeat(labels, np.diff(graph.indptr))
    # The label itself before others of weight 1, then by weight and row.
    order = np.lexsort((graph.indices, -graph.data, graph.indices != rows, rows))
    place = np.arange(len(rows)) - graph.indptr[:-1][rows]  # rows ascend in the order too
    kept = place < most
    found = np.repeat(labels[:, None], most, axis=1).astype(np.int32)
    weights = np.zeros((n_labels, most), np.float32)
    found[rows[kept], place[kept]] = graph.indices[order][kept]
    weights[rows[kept], place[kept]] = graph.data[order][kept]
    return found, weights / weights.sum(axis=1, keepdims=True)
