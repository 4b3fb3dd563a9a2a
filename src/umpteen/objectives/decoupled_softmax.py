"""Decoupled softmax: a positive competes with the negatives alone."""

from __future__ import annotations

import torch
from torch import Tensor

from umpteen.objectives.base import logsumexp, sum_by_row, without_positives
from umpteen.types import Positives, ScoreSummary


class DecoupledSoftmax:
    """Softmax of each positive against the negatives, without the query's other positives.

    l(p) = -log( exp(s_p) / (exp(s_p) + sum over negatives of exp(s_n)) )

    What it is for: several positives per query, whose scores should all be high at once.
    What it needs: any number of positives per query, and all of a query's positives marked as such;
    an unmarked one is a negative that the loss pushes away.
    When to take its neighbour: with exactly one positive per query ``softmax`` is the same number;
    ``bce`` when scores must mean something on their own, not only in their order.
    Cost: as ``softmax``; the positives are masked with -inf in a copy of the scores.
    Source: Gupta et al., Dual-Encoders for Extreme Multi-Label Classification (DEXML, 2024).
    """

    shift_invariant = True
    monotone = True
    summary = ScoreSummary("logsumexp", over_positives=False, linear=False)

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Compute log-sum-exp over the block's negatives: (B, C) to (B, 1)."""
        negatives = without_positives(scores, positives)
        return logsumexp(negatives, dim=1).unsqueeze(1)

    def merge(self, stats: Tensor) -> Tensor:
        """Compute log-sum-exp over the blocks."""
        return logsumexp(stats, dim=0)

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return the weighted sum of l(p) = softplus(lse(negatives) - s_p) of each row."""
        terms = torch.nn.functional.softplus(stats[positives.rows, 0] - positive_scores)  # (P,)
        return sum_by_row(terms * weights * positives.targets, positives.rows, len(stats))
