"""The Objective protocol and the plain way to run one on a single block of scores.

An objective sees a block of scores (B, C) and the positives inside it, and never learns whether the
C candidates are a batch's pool, one chunk of all labels, or one device's shard. It is three plain
differentiable functions: a small summary of a block, an associative merge of summaries, and the
loss from the merged summary and the positives' scores. Whatever streams blocks or merges ranks
works for every objective, because it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from umpteen.types import Positives

Reduction = Callable[[Positives, int], Tensor]
"""Positives and the number of rows to one weight per positive (P,), without the targets."""


class Objective(Protocol):
    """A base loss; laws in ``tests/contracts/test_objectives.py``.

    Pairs that count neither way come in with a score of -inf, which every objective must treat as
    absent.
    """

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Summarise one block: scores (B, C) to (B, S)."""

    def merge(self, stats: Tensor) -> Tensor:
        """Merge the summaries of n blocks: (n, B, S) to (B, S); associative."""

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """The loss of each row (B,), zero for a row without positives.

        Args:
            stats: (B, S) merged over all blocks.
            positive_scores: (P,) scores of the positives of all blocks.
            positives: Their rows and targets.
            weights: (P,) from a reduction.
        """


def block_loss(
    objective: Objective, reduction: Reduction, scores: Tensor, positives: Positives
) -> Tensor:
    """The mean loss over the rows that have a positive, for scores held whole.

    Args:
        objective: The base loss.
        reduction: How a row's positives are weighed against each other.
        scores: (B, C); -inf where a pair counts neither way.
        positives: Pairs inside the block.

    Returns:
        A scalar; zero, with a gradient of zero, when no row has a positive.
    """
    n_rows = scores.shape[0]
    positive_scores = scores[positives.rows, positives.cols]  # (P,)
    stats = objective.row_stats(scores, positives)  # (B, S)
    rows = objective.loss(stats, positive_scores, positives, reduction(positives, n_rows))  # (B,)
    counted = torch.zeros(n_rows, dtype=scores.dtype, device=scores.device)
    counted[positives.rows] = 1.0
    return rows.sum() / counted.sum().clamp(min=1.0)


def logsumexp(scores: Tensor, dim: int) -> Tensor:
    """``torch.logsumexp`` whose gradient is zero, not NaN, where every entry is -inf."""
    empty = torch.isneginf(scores).all(dim=dim, keepdim=True)
    finite = torch.logsumexp(scores.masked_fill(empty, 0.0), dim=dim)
    return finite.masked_fill(empty.squeeze(dim), float("-inf"))


def sum_by_row(values: Tensor, rows: Tensor, n_rows: int) -> Tensor:
    """Add up one value per positive into one per row: (P,) to (n_rows,)."""
    return torch.zeros(n_rows, dtype=values.dtype, device=values.device).index_add(0, rows, values)
