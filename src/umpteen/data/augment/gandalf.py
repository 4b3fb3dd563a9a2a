"""Gandalf: targets of a label's text are labels that often come with it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

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
