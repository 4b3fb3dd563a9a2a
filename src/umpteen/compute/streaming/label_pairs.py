"""The (query, label) pairs of a loss over all labels, sorted by label and cut by block; no scores.

Sorting and cutting happen on the host, so that a step on a device waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks
from umpteen.errors import LabelMismatch
from umpteen.types import Positives


@dataclass(frozen=True)
class Direction:
    """The positives as queries, or as labels, see them: sorted by label, and what they weigh."""

    positives: Positives
    """Of all labels; the rows are those of whoever chooses."""
    weights: Tensor
    """(P,) from the reduction."""
    absent: Tensor | None
    """(P,) 0, or -inf for a positive that the reduction dropped; None if it drops none."""
    labels_choose: bool
    """Whether the rows are labels and the columns queries."""

    def view(self, scores: Tensor, part: slice, start: int) -> tuple[Tensor, Tensor, Positives]:
        """Return a block of labels as this side sees it.

        Args:
            scores: (B, C) of the labels from ``start`` on.
            part: Where their positives are.
            start: The block's first label.

        Returns:
            The scores, with rows for whoever chooses and -inf at dropped positives; the positives'
            scores, 0 for a dropped one; and the positives by their place in the block.
        """
        rows, cols = self.positives.rows[part], self.positives.cols[part]
        if self.labels_choose:
            scores, rows = scores.T, rows - start
        else:
            cols = cols - start
        found = scores[rows, cols]
        inside = Positives(rows, cols, self.positives.targets[part])
        if self.absent is None:
            return scores, found, inside
        absent = self.absent[part]
        seen = scores.index_put((rows, cols), absent, accumulate=True)
        return seen, found.masked_fill(torch.isneginf(absent), 0.0), inside


@dataclass(frozen=True)
class Pairs:
    """Pairs sorted by label: on the device, with the labels on the host as well."""

    rows: Tensor
    cols: Tensor
    order: Tensor
    """(P,) where each pair was before sorting."""
    labels: NDArray[np.integer]
    """(P,) the sorted labels on the host, where blocks are cut."""
    n_rows: int
    """How many queries occur."""
    n_cols: int
    """How many labels occur."""

    def between(self, start: int, stop: int) -> slice:
        """Return where the pairs with labels start .. stop - 1 are."""
        first, last = np.searchsorted(self.labels, [start, stop])
        return slice(int(first), int(last))


def sort_pairs(
    rows: Any, cols: Any, *, n_queries: int, n_labels: int, device: torch.device
) -> Pairs:
    """Check pairs and sort them by label.

    Args:
        rows: (P,) queries, NumPy or torch.
        cols: (P,) labels likewise.
        n_queries: How many queries there are.
        n_labels: How many labels there are.
        device: Where the pairs go.

    Returns:
        The sorted pairs.

    Raises:
        LabelMismatch: If a pair names a query or label that is not there; it would otherwise fall
            between the blocks in silence.
    """
    rows, cols = _host(rows), _host(cols)
    for what, values, count in (("query", rows, n_queries), ("label", cols, n_labels)):
        if len(values) and not (values.min() >= 0 and values.max() < count):
            wrong = int(values.max()) if values.max() >= count else int(values.min())
            raise LabelMismatch(f"a pair names {what} row {wrong}; rows are 0 to {count - 1} here")
    order = np.argsort(cols, kind="stable")
    labels = cols[order]
    # One copy for all: on a GPU each would take a pinned buffer and a launch of its own.
    there = place(np.stack([rows[order], labels, order]).astype(np.int64, copy=False), device)
    n_cols = int((labels[1:] != labels[:-1]).sum()) + 1 if len(labels) else 0
    n_rows = int((np.bincount(rows) > 0).sum())
    return Pairs(there[0], there[1], there[2], labels, n_rows, n_cols)


def weigh(
    reduction: Callable[[Positives, int], Tensor],
    positives: Positives,
    n_rows: int,
    order: Tensor,
    *,
    labels_choose: bool,
) -> Direction:
    """Return the positives' weights, found in the order in which the pairs came, then sorted.

    A reduction that draws then draws what it would for scores held whole.
    """
    weights = reduction(positives, n_rows)
    absent, targets = None, positives.targets
    if getattr(reduction, "drops", False):
        gone = weights == 0
        absent = torch.zeros_like(weights).masked_fill(gone, float("-inf"))[order]
        targets = targets.masked_fill(gone, 0.0)
    ordered = Positives(positives.rows[order], positives.cols[order], targets[order])
    return Direction(ordered, weights[order], absent, labels_choose)


def same_on_all(
    reduction: Callable[[Positives, int], Tensor], ranks: Ranks
) -> Callable[[Positives, int], Tensor]:
    """Return a reduction that draws, drawn on the first rank.

    Others give the same everywhere anyway.
    """
    if not ranks.exchanges or not getattr(reduction, "draws", False):
        return reduction
    return _FromFirst(reduction, ranks)


class _FromFirst:
    draws = True

    def __init__(self, reduction: Callable[[Positives, int], Tensor], ranks: Ranks) -> None:
        self.reduction, self.ranks = reduction, ranks
        self.drops = getattr(reduction, "drops", False)

    def __call__(self, positives: Positives, n_rows: int) -> Tensor:
        return self.ranks.from_first(self.reduction(positives, n_rows))


def place(values: Any, device: torch.device) -> Tensor:
    """Return an array on the device; from pinned memory, so that the host need not wait for it."""
    if isinstance(values, Tensor):
        return values.to(device)
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _host(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
