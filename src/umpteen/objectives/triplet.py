"""Triplet: a positive must beat the hardest negatives by a margin."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad, relu

from umpteen.errors import ConfigError
from umpteen.objectives.base import sum_by_row, without_positives
from umpteen.types import Positives


class Triplet:
    """Triplet loss of each positive against the hardest negatives within the margin.

    l(p) = sum over the m hardest negatives n of u_n max(0, margin + s_n - s_p)

    Negatives within the margin are active. u is a softmax over the active ones' violations, as a
    constant for the gradient, so that the hardest pull most; or 1 / their number.

    What it is for: ranking with hard negatives in clustered batches; easy pairs cost nothing, so
    training ends up on the pairs that are wrong.
    What it needs: scores that are plain cosines, or a margin in their units: cosines over a
    temperature t need margin / t. And negatives that are negatives: an unmarked positive is the
    hardest of all.
    When to take its neighbour: ``decoupled_softmax`` learns from all negatives at once, needs no
    margin, and is the better start.
    Cost: one pass with a top-m; a summary of m numbers per query, and (P, m) in the loss.
    Source: Dahiya et al., NGAME: Negative Mining-aware Mini-batching for Extreme Classification
    (2023).

    Args:
        margin: By how much a positive must lead, in units of the scores.
        n_negatives: m, how many of a query's hardest negatives count.
        softmax_weighted: Whether harder negatives weigh more; False for an even mean.

    Raises:
        ConfigError: If the margin is negative or there is not one negative to count.
    """

    def __init__(
        self, margin: float = 0.3, n_negatives: int = 10, *, softmax_weighted: bool = True
    ) -> None:
        if not (margin >= 0 and math.isfinite(margin)):
            raise ConfigError(f"triplet: margin is {margin!r}; it must be a number of 0 or more")
        if n_negatives < 1:
            raise ConfigError(f"triplet: n_negatives is {n_negatives!r}; it must be 1 or more")
        self.margin = margin
        self.n_negatives = n_negatives
        self.softmax_weighted = softmax_weighted

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Return the block's highest negatives, falling.

        (B, C) to (B, m), -inf where there are fewer.
        """
        return self._highest(without_positives(scores, positives))

    def merge(self, stats: Tensor) -> Tensor:
        """Return the highest of all blocks' highest."""
        return self._highest(stats.transpose(0, 1).flatten(1))

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return the weighted sum of l(p) of each row."""
        violations = self.margin + stats[positives.rows] - positive_scores.unsqueeze(1)  # (P, m)
        shares = self._shares(violations.detach())
        terms = (shares * relu(violations)).sum(dim=1)  # (P,)
        return sum_by_row(terms * weights * positives.targets, positives.rows, len(stats))

    def _highest(self, scores: Tensor) -> Tensor:
        found = scores.topk(min(self.n_negatives, scores.shape[1]), dim=1).values
        return pad(found, (0, self.n_negatives - found.shape[1]), value=float("-inf"))

    def _shares(self, violations: Tensor) -> Tensor:
        """Normalize (P, m) to sum to 1 over the active entries; 0 where none is active."""
        active = violations > 0
        if not self.softmax_weighted:
            even = active.to(violations.dtype)
            return even / even.sum(dim=1, keepdim=True).clamp(min=1.0)
        shares = torch.softmax(violations.masked_fill(~active, float("-inf")), dim=1)
        return shares.masked_fill(~active, 0.0)  # a row of -inf alone came out as NaN
