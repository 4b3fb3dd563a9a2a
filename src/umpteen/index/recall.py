"""How much of the exact answer an approximate index finds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.index.base import LabelIndex


def recall(index: LabelIndex, exact: LabelIndex, queries: Any, k: int) -> float:
    """Return the share of the exact top k that an index returns in its own top k.

    Equal scores at the k-th place count as misses if the index chose another of them.

    Args:
        index: The index to judge.
        exact: The reference, usually an ``ExactIndex`` of the same vectors.
        queries: (B, D).
        k: How many labels.

    Returns:
        A share in [0, 1]; 1 where there is nothing to find.
    """
    found, wanted = index.search(queries, k), exact.search(queries, k)
    return share_found(found.rows, wanted.rows, exact.n_labels)


def share_found(found: NDArray[np.int64], wanted: NDArray[np.int64], n_labels: int) -> float:
    """Return the share of the wanted rows of each query that were found; -1 stands for no row."""
    first = np.arange(len(wanted), dtype=np.int64)[:, None] * n_labels
    wanted_pairs = (first + wanted)[wanted >= 0]
    found_pairs = (first + found)[found >= 0]
    return float(np.isin(wanted_pairs, found_pairs).mean()) if len(wanted_pairs) else 1.0
