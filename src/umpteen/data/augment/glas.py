"""GLaS targets: symmetric co-occurrence through a sigmoid."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from umpteen.data.augment.graph import Counts, Dropped, GraphOptions, stack, thresholded, with_own
from umpteen.types import Progress, RowIndices

DELTA = 0.0
OWN = 1 / (1 + math.exp(-1))
"""A label's own target, sigmoid(1)."""


def label_targets(
    targets: sp.csr_matrix, labels: RowIndices, options: GraphOptions, progress: Progress
) -> tuple[sp.csr_matrix, Dropped]:
    """Compute target l of label j.

    Sigmoid(S_jl) where S_jl > delta (0), S = (P(l | j) + P(j | l)) / 2.

    With delta 0 every pair of labels that ever come together is kept, which is several times what
    ``gandalf`` keeps. The label itself has sigmoid(1), about 0.73, since S_jj = 1.
    """
    delta = DELTA if options.delta is None else options.delta
    counts = Counts(targets, options)
    frequencies = counts.frequencies
    found = []
    for place, block, queries in counts.blocks(labels):
        per_row = np.diff(block.indptr)
        forward = block.data / np.repeat(queries, per_row)  # P(l | j)
        ratio = np.repeat(frequencies[labels[place]], per_row) / frequencies[block.indices]
        backward = np.minimum(forward * ratio, 1.0)  # P(j | l); an estimate where j is drawn
        kept = thresholded(block, (forward + backward) / 2, delta)
        kept.data = 1 / (1 + np.exp(-kept.data))
        found.append(with_own(kept, labels[place], OWN))
        progress(place.stop, len(labels))
    return stack(found, targets.shape[1]), counts.dropped
