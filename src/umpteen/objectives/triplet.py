"""Triplet: a positive must beat the hardest negatives by a margin."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import relu

from umpteen.errors import ConfigError
from umpteen.objectives.base import highest_scores, ranks_in_rows, sum_by_row, without_positives
from umpteen.types import Positives

OUTSIDE = ("absent", "zero")
"""What a negative outside the margin may be to the softmax."""


class Triplet:
    """Triplet loss of each positive against the hardest negatives within the margin.

    l(p) = sum over the m hardest negatives n of u_n max(0, margin + s_n - s_p)

    Negatives within the margin are active. u is a softmax of s_n / temperature over the active
    ones, so that the hardest pull most, and the gradient goes through it; or 1 / their number.
    NGAME's code keeps the others of the m hardest in that softmax with a logit of 0
    (``outside_margin="zero"``), so that a lone active negative weighs less than 1.

    What it is for: ranking with hard negatives in clustered batches; easy pairs cost nothing, so
    training ends up on the pairs that are wrong.
    What it needs: scores that are plain cosines, or a margin and a temperature in their units:
    cosines over a temperature t need margin / t. And negatives that are negatives: an unmarked
    positive is the hardest of all.
    When to take its neighbour: ``decoupled_softmax`` learns from all negatives at once, needs no
    margin, and is the better start.
    Cost: one pass with a top-m; a summary of m numbers per query, and (P, m) in the loss.
    Source: Dahiya et al., NGAME: Negative Mining-aware Mini-batching for Extreme Classification
    (2023). Its first stage has a temperature of 0.1, one positive and ``outside_margin="zero"``;
    its second stage a temperature of 1 and the three hardest positives. It divides by m and by the
    number of positives that may count, which are constants; here both are sums.

    Args:
        margin: By how much a positive must lead, in units of the scores.
        n_negatives: m, how many of a query's hardest negatives count.
        softmax_weighted: Whether harder negatives weigh more; False for an even mean.
        temperature: Of that softmax, in units of the scores.
        n_positives: How many of a query's hardest positives (those with the lowest scores) count,
            each with its own weight; 0 for all.
        outside_margin: What negatives outside the margin are to the softmax: ``absent``, or
            ``zero`` for a logit of 0.

    Raises:
        ConfigError: If an option is out of its range.
    """

    shift_invariant = True
    monotone = True

    def __init__(
        self,
        margin: float = 0.3,
        n_negatives: int = 10,
        *,
        softmax_weighted: bool = True,
        temperature: float = 0.1,
        n_positives: int = 0,
        outside_margin: str = "absent",
    ) -> None:
        if not (margin >= 0 and math.isfinite(margin)):
            raise ConfigError(f"triplet: margin is {margin!r}; it must be a number of 0 or more")
        if n_negatives < 1:
            raise ConfigError(f"triplet: n_negatives is {n_negatives!r}; it must be 1 or more")
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ConfigError(f"triplet: temperature is {temperature!r}; it must be above 0")
        if n_positives < 0:
            raise ConfigError(f"triplet: n_positives is {n_positives!r}; it must be 0 or more")
        if outside_margin not in OUTSIDE:
            raise ConfigError(
                f"triplet: outside_margin is {outside_margin!r}; it must be one of "
                + ", ".join(OUTSIDE)
            )
        self.margin = margin
        self.n_negatives = n_negatives
        self.softmax_weighted = softmax_weighted
        self.temperature = temperature
        self.n_positives = n_positives
        self.outside_margin = outside_margin
        self.shift_invariant = outside_margin == "absent" or not softmax_weighted

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Return the block's highest negatives, falling.

        (B, C) to (B, m), -inf where there are fewer.
        """
        return highest_scores(without_positives(scores, positives), self.n_negatives)

    def merge(self, stats: Tensor) -> Tensor:
        """Return the highest of all blocks' highest."""
        return highest_scores(stats.transpose(0, 1).flatten(1), self.n_negatives)

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return the weighted sum of l(p) of each row."""
        weights = weights * positives.targets
        if self.n_positives:
            weights = self._on_hardest(weights, positive_scores, positives.rows, len(stats))
        negatives = stats[positives.rows]  # (P, m)
        violations = self.margin + negatives - positive_scores.unsqueeze(1)
        terms = (self._shares(negatives, violations > 0) * relu(violations)).sum(dim=1)  # (P,)
        return sum_by_row(terms * weights, positives.rows, len(stats))

    def _on_hardest(self, weights: Tensor, scores: Tensor, rows: Tensor, n_rows: int) -> Tensor:
        """Return the weights (P,), 0 for all but each row's hardest positives."""
        keys = scores.detach().masked_fill(weights == 0, float("inf"))  # a dropped one is none
        return weights * (ranks_in_rows(keys, rows, n_rows) < self.n_positives)

    def _shares(self, negatives: Tensor, active: Tensor) -> Tensor:
        """Return the weights (P, m), 0 where not active; they add up to 1, or less with others."""
        if not self.softmax_weighted:
            even = active.to(negatives.dtype)
            return even / even.sum(dim=1, keepdim=True).clamp(min=1.0)
        outside = float("-inf") if self.outside_margin == "absent" else 0.0
        logits = (negatives / self.temperature).masked_fill(~active, outside)
        logits = logits.masked_fill(torch.isneginf(negatives), float("-inf"))
        # Rows without an active entry are 0, not -inf, or their gradient would be NaN.
        dead = ~active.any(dim=1, keepdim=True)
        shares = torch.softmax(logits.masked_fill(dead, 0.0), dim=1)
        return shares * active
