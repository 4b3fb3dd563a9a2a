"""Probabilistic contrastive loss: a cosine is the logarithm of a probability."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from umpteen.errors import ConfigError
from umpteen.objectives.base import highest_scores, sum_by_row, without_positives
from umpteen.types import Positives


class ProbabilisticContrastive:
    """Likelihood of each pair under P(positive) = c exp(d (s - 1)), s a cosine.

    row loss = (1 / d) ( sum over positives of w_p t_p (d (1 - s_p) - log c)
                       + sum over negatives of -log(1 - c exp(d (s_n - 1))) )

    What it is for: the first stage of SiameseXML, with the hardest negatives of a batch; its second
    stage over a shortlist, where negatives that cost little count nothing.
    What it needs: plain cosines (``model.dual_temperature=1``); a score above 1 would be no
    probability and counts as 1 among the negatives.
    When to take its neighbour: ``decoupled_softmax`` needs no constants and is the better start;
    ``bce`` for scores without a bound.
    Cost: one pass; a summary of one number per query, or of ``n_negatives`` ones.
    Source: Dahiya et al., SiameseXML: Siamese Networks meet Extreme Classifiers with 100M Labels
    (2021); constants of its published code: c 0.9 and d 1.5 with the hardest negatives, c 0.75,
    d 3 and a threshold of 0.05 over a shortlist.

    Args:
        c: The probability at a cosine of 1.
        d: How fast it falls.
        n_negatives: How many of a query's hardest negatives count; 0 for all.
        threshold: Negatives whose term (with 1 / d) is below this count nothing.

    Raises:
        ConfigError: If an option is out of its range.
    """

    monotone = True

    def __init__(
        self, c: float = 0.9, d: float = 1.5, *, n_negatives: int = 0, threshold: float = 0.0
    ) -> None:
        if not 0 < c < 1:
            raise ConfigError(f"prob_contrastive: c is {c!r}; it must be between 0 and 1")
        if not (d > 0 and math.isfinite(d)):
            raise ConfigError(f"prob_contrastive: d is {d!r}; it must be a number above 0")
        if n_negatives < 0 or threshold < 0:
            raise ConfigError("prob_contrastive: n_negatives and threshold must be 0 or more")
        self.c, self.d = c, d
        self.n_negatives, self.threshold = n_negatives, threshold

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Return the sum of the negatives' terms, (B, 1), or the highest negatives, (B, m)."""
        negatives = without_positives(scores, positives)
        if self.n_negatives:
            return highest_scores(negatives, self.n_negatives)
        return self._terms(negatives).sum(dim=1, keepdim=True)

    def merge(self, stats: Tensor) -> Tensor:
        """Sum over the blocks, or the highest of all."""
        if self.n_negatives:
            return highest_scores(stats.transpose(0, 1).flatten(1), self.n_negatives)
        return stats.sum(dim=0)

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return the terms of each row that has a positive."""
        terms = (1 - positive_scores) - math.log(self.c) / self.d  # (P,)
        below = self._terms(stats).sum(dim=1) if self.n_negatives else stats[:, 0]
        counted = torch.zeros_like(below, requires_grad=False)
        counted = counted.index_fill(0, positives.rows, 1.0)
        own = sum_by_row(terms * weights * positives.targets, positives.rows, len(stats))
        return below * counted + own

    def _terms(self, scores: Tensor) -> Tensor:
        """Return -log(1 - P) / d of negatives; 0 below the threshold, and for -inf."""
        chance = self.c * torch.exp(self.d * (scores.clamp(max=1.0) - 1))
        terms = -torch.log1p(-chance) / self.d
        return terms.masked_fill(terms < self.threshold, 0.0) if self.threshold else terms
