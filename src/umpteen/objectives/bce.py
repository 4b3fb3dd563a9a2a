"""Binary cross-entropy: every candidate is a yes-or-no question of its own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from umpteen.objectives.base import sum_by_row, without_positives
from umpteen.types import Positives, ScoreSummary


class BinaryCrossEntropy:
    """One-vs-all logistic loss, summed over the candidates or their mean.

    row loss = sum over negatives of softplus(s_n)
             + sum over positives of w_p ( t_p softplus(-s_p) + (1 - t_p) softplus(s_p) )

    with t the target in (0, 1] and w the reduction's weight (1 for ``pal``, its usual reduction);
    over the query's number of candidates where it is a mean.

    What it is for: classifier vectors whose scores should read as probabilities; as a small
    addition to ``decoupled_softmax`` it sharpens frequent labels and costs some of the rare ones.
    What it needs: scores without a bound (not cosines over a temperature near 1). Over the pool of
    a batch, beside a dual head: ``mean``, or the sum outweighs the dual head's loss by far.
    When to take its neighbour: for label texts through a dual encoder, ``decoupled_softmax``.
    Cost: one pass over the scores; merged by a sum, so one streamed pass is enough.
    Source: Jain et al., Renee: End-to-End Training of Extreme Classification Models (2023), for
    classifier vectors over all labels, summed (its code says that a mean did not work well there).
    Astec, DECAF, ECLARE and InceptionXML have the mean over a shortlist.

    Args:
        mean: Whether the sum is divided by the number of candidates. Over all labels this takes
            the general path, not the fast one.
    """

    monotone = True
    summary: ScoreSummary | None = ScoreSummary("softplus", over_positives=False, linear=True)

    def __init__(self, *, mean: bool = False) -> None:
        self.mean = mean
        if mean:
            self.summary = None  # the count is a second number of the summary

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Sum of softplus over the block's negatives: (B, C) to (B, 1).

        For a mean (B, 2), with the number of candidates.
        """
        negatives = without_positives(scores, positives)
        total = softplus(negatives).sum(dim=1, keepdim=True)
        if not self.mean:
            return total
        count = (~torch.isneginf(scores)).sum(dim=1, keepdim=True)
        return torch.cat([total, count.to(total.dtype)], dim=1)

    def merge(self, stats: Tensor) -> Tensor:
        """Sum over the blocks."""
        return stats.sum(dim=0)

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return negatives and positives of each row that has a positive."""
        # t softplus(-s) + (1 - t) softplus(s) = softplus(-s) + (1 - t) s, which unlike
        # softplus(s) - t s keeps the small loss of a positive that is nearly learned.
        rest = (1 - positives.targets) * positive_scores
        terms = weights * (softplus(-positive_scores) + rest)  # (P,)
        counted = torch.zeros(len(stats), dtype=stats.dtype, device=stats.device)
        counted.index_fill_(0, positives.rows, 1.0)
        total = stats[:, 0] * counted + sum_by_row(terms, positives.rows, len(stats))
        return total / stats[:, 1].clamp(min=1.0) if self.mean else total
