"""Self-annotation: a label's text has that label and no other."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from umpteen.data.augment.graph import Dropped, GraphOptions
from umpteen.types import Progress, RowIndices


def label_targets(
    targets: sp.csr_matrix, labels: RowIndices, options: GraphOptions, progress: Progress
) -> tuple[sp.csr_matrix, Dropped]:
    """Compute target l of label j: 1 where l is j."""
    n = len(labels)
    shape = (n, targets.shape[1])
    progress(n, n)
    return sp.csr_matrix((np.ones(n, np.float32), labels, np.arange(n + 1)), shape=shape), Dropped()
