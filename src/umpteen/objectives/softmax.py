"""Softmax over the candidates (SupCon, InfoNCE)."""

from __future__ import annotations

from torch import Tensor

from umpteen.objectives.base import logsumexp, sum_by_row
from umpteen.types import Positives, ScoreSummary


class Softmax:
    """Softmax of each positive against all candidates, the query's other positives included.

    l(p) = -log( exp(s_p) / sum over all candidates of exp(s_l) )

    What it is for: queries with one positive, or the SupCon row of a comparison.
    What it needs: any number of positives per query; scores already divided by the temperature.
    When to take its neighbour: with several positives per query they push each other down, since
    they share one denominator; ``decoupled_softmax`` takes the others out and is the better choice.
    Cost: one pass over the scores; a summary of one number per query.
    Source: Khosla et al., Supervised Contrastive Learning (2020); van den Oord et al., CPC (2018).
    """

    shift_invariant = True
    summary = ScoreSummary("logsumexp", over_positives=True, linear=False)

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Compute log-sum-exp over the block's candidates: (B, C) to (B, 1)."""
        return logsumexp(scores, dim=1).unsqueeze(1)

    def merge(self, stats: Tensor) -> Tensor:
        """Compute log-sum-exp over the blocks."""
        return logsumexp(stats, dim=0)

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return the weighted sum of l(p) of each row."""
        terms = stats[positives.rows, 0] - positive_scores  # (P,)
        return sum_by_row(terms * weights * positives.targets, positives.rows, len(stats))
