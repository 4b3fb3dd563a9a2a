"""Where precision comes from: the share of P@k that each label-frequency bin brings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import DataError
from umpteen.metrics.base import Hits

BIN_NAMES = ("head", "2", "3", "4", "tail")
"""Of the five bins of reports and studies."""


def frequency_bins(label_counts: NDArray[np.int64], bins: int = 5) -> NDArray[np.int64]:
    """Put each label into one of several bins of equal volume, head (0) to tail.

    Volume is the sum of training counts, so the first bin has few, frequent labels and the last
    has many, rare ones. A label belongs to the bin its first training query falls into when labels
    are laid out from frequent to rare (equal counts by row); labels never seen are in the last.

    Args:
        label_counts: (L,) training queries of each label.
        bins: How many.

    Returns:
        (L,) bin of each label.

    Raises:
        DataError: If fewer than one bin is asked for.

    Example:
        >>> frequency_bins(np.array([1, 6, 1, 2]), bins=2).tolist()
        [1, 0, 1, 1]
    """
    if bins < 1:
        raise DataError(f"{bins} bins cannot hold any label; ask for 1 or more")
    counts = np.asarray(label_counts, np.int64)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    total = max(1, int(counts.sum()))
    # Integers throughout: a float boundary would move labels between bins with the platform.
    ordered = np.minimum(before * bins // total, bins - 1)
    ordered[counts[order] == 0] = bins - 1
    result = np.empty(len(counts), np.int64)
    result[order] = ordered
    return result


def contributions(hits: Hits, k: int, bins: int = 5) -> NDArray[np.float64]:
    """Compute ``precision_by_bin`` from hits that have the label counts.

    Args:
        hits: The comparison.
        k: Places looked at.
        bins: How many bins.

    Returns:
        (bins,) fractions whose sum is P@k.

    Raises:
        DataError: If the hits have no label counts.
    """
    if hits.label_counts is None:
        raise DataError("bins need the labels' training counts; give them to find_hits")
    bin_of = frequency_bins(hits.label_counts, bins)
    counts = np.bincount(bin_of[hits.hit_labels(k)], minlength=bins)
    return counts / (max(1, len(hits)) * k)
