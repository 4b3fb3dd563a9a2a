"""A loss from queries to labels and from labels to queries on the same scores, in shared passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from umpteen.objectives.base import Objective, Reduction, block_loss, mean_over_rows
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
from umpteen.objectives.softmax import Softmax
from umpteen.types import Positives

SHARED: dict[type, bool] = {Softmax: False, DecoupledSoftmax: True}
"""Objectives, but not their subclasses, that summarise a row by the log-sum-exp of its candidates;
and whether the positives are left out of it."""


def bidirectional_loss(
    objective: Objective | Any,
    reduction: Reduction,
    forward: float,
    scores: Tensor,
    positives: Positives,
) -> Tensor:
    """Return the weighted sum of a loss and its mirror image.

    Equals ``forward * block_loss(objective, reduction, scores, positives) + (1 - forward) *
    block_loss(objective, reduction, scores.T, positives.transposed())``. For softmax and decoupled
    softmax one masked copy of the scores serves both, forward and backward.

    Args:
        objective: The base loss.
        reduction: How a row's positives are weighed against each other.
        forward: The weight of queries to labels; a direction without weight is not computed.
        scores: (B, C); -inf where a pair counts neither way.
        positives: Pairs inside the block.

    Returns:
        A scalar.
    """
    mirrored = positives.transposed()
    if forward >= 1:
        return forward * block_loss(objective, reduction, scores, positives)
    if forward <= 0:
        return (1 - forward) * block_loss(objective, reduction, scores.T, mirrored)
    if type(objective) not in SHARED or getattr(reduction, "drops", False):
        there = block_loss(objective, reduction, scores, positives)
        back = block_loss(objective, reduction, scores.T, mirrored)
        return forward * there + (1 - forward) * back
    pairs = (positives.rows, positives.cols) if SHARED[type(objective)] else ()
    of_rows, of_columns = bidirectional_logsumexp(scores, *pairs)
    found = scores[positives.rows, positives.cols]  # (P,)
    there = _direction(objective, reduction, of_rows, found, positives)
    back = _direction(objective, reduction, of_columns, found, mirrored)
    return forward * there + (1 - forward) * back


def _direction(
    objective: Objective, reduction: Reduction, stats: Tensor, found: Tensor, positives: Positives
) -> Tensor:
    weights = reduction(positives, len(stats))
    rows = objective.loss(stats.unsqueeze(1), found, positives, weights)
    return mean_over_rows(rows, positives)


def bidirectional_logsumexp(
    scores: Tensor, rows: Tensor | None = None, cols: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute log-sum-exp of every row, (B,), and of every column, (C,), without the given pairs.

    Equals ``base.logsumexp`` over both dimensions of the scores with -inf at the pairs: -inf, with
    a gradient of zero, where nothing is left.
    """
    found: tuple[Tensor, Tensor] = _LogSumExpBothWays.apply(scores, rows, cols)
    return found


class _LogSumExpBothWays(torch.autograd.Function):
    """One copy of the scores is kept; its -inf are where the gradient is zero."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, rows: Tensor | None, cols: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if rows is not None and cols is not None:
            nothing = torch.full((), float("-inf"), dtype=scores.dtype, device=scores.device)
            scores = scores.index_put((rows, cols), nothing)
        of_rows, of_columns = torch.logsumexp(scores, dim=1), torch.logsumexp(scores, dim=0)
        ctx.save_for_backward(scores, of_rows, of_columns)
        return of_rows, of_columns

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_rows: Tensor, by_columns: Tensor) -> tuple[Tensor, None, None]:
        scores, of_rows, of_columns = ctx.saved_tensors
        gradient = _shares(scores, of_rows.unsqueeze(1)).mul_(by_rows.unsqueeze(1))
        return gradient.addcmul_(_shares(scores, of_columns), by_columns), None, None


def _shares(scores: Tensor, totals: Tensor) -> Tensor:
    """Compute exp(scores - totals), 0 where the total is empty."""
    return (scores - totals.masked_fill(totals == float("-inf"), float("inf"))).exp_()
