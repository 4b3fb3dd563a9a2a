"""Soft top-k: a positive wants to be among the query's k best candidates, in no special order."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from umpteen.errors import ConfigError
from umpteen.objectives.base import OverBlocks, sum_by_row
from umpteen.types import Positives

# A grid pass evaluates POINTS thresholds and narrows the bracket (POINTS + 1)-fold; each threshold
# costs about what computing the scores again does. A Newton pass squares the error once the bracket
# is within 1 / alpha, which for cosines over 0.05 five grid passes reach with a factor of 100 left.
GRID_PASSES = 5
POINTS = 7
NEWTON_PASSES = 2
SMALLEST_SLOPE = 1e-30  # below it (scores of the k-th and next label some 70 apart) t is a constant


class SoftTopK:
    """Smooth top-k loss: each positive should be among the k best candidates.

    p_l = sigmoid(alpha (s_l + t)) with the query's own t such that sum over all l of p_l = k
    l(p) = -log p_p

    The gradient through t. t solves F(t, s) = sum_l p_l - k = 0, so by the implicit function
    theorem dt/ds_l = -v_l / V with v_l = alpha p_l (1 - p_l) = dF/ds_l and V = sum_l v_l = dF/dt.
    With t a number found without gradient, the loss uses

        t' = t - F(t, s) / V,  V a constant.

    Its value is a Newton step from t, so a t that is nearly right becomes exact, and its derivative
    by s_l is -(dF/ds_l) / V = -v_l / V, the theorem's. So plain differentiation of plain sums over
    blocks gives dp/ds = diag(v) - v v^T / V, without a hand-written backward.

    What it is for: P@k and R@k with a known k, several positives per query; label spaces held whole
    (a pool's top k is another question than all labels').
    What it needs: scores over a temperature (alpha = 2 is meant for cosines over 0.05).
    When to take its neighbour: ``decoupled_softmax`` when the first place matters most, or when
    each step sees a sample of the labels.
    Cost: GRID_PASSES + NEWTON_PASSES + 1 passes over the scores more than the others, without
    gradients; the summary is four numbers per query. A query with k candidates or fewer costs 0:
    each has its place. Candidates are counted in the scores' type, exactly up to 2^24 of them in
    float32.
    Source: Gupta et al., Dual-Encoders for Extreme Multi-Label Classification (DEXML, 2024).

    Args:
        k: How many places; ``"positives"`` for as many as the query has positives.
        alpha: How sharp the edge between in and out is.

    Raises:
        ConfigError: If k or alpha is out of range.
    """

    shift_invariant = True

    def __init__(self, k: int | str = 5, alpha: float = 2.0) -> None:
        if k != "positives" and (not isinstance(k, int) or isinstance(k, bool) or k < 1):
            raise ConfigError(
                f"soft_top_k: k is {k!r}; it must be an integer of 1 or more, or 'positives'"
            )
        if not (alpha > 0 and math.isfinite(alpha)):
            raise ConfigError(f"soft_top_k: alpha is {alpha!r}; it must be a number above 0")
        self.k = k
        self.alpha = alpha

    def prepare(self, over_blocks: OverBlocks, positives: Positives, n_rows: int) -> Tensor:
        """Return the threshold t of each row, (B, 1); inf where every candidate has a place."""
        highest, lowest, count = over_blocks(_extremes, _merge_extremes).unbind(1)  # (B,) each
        k = self._places(positives, count)
        full = k >= count
        # n sigmoid(alpha (lowest + t)) <= k <= n sigmoid(alpha (highest + t)) brackets t.
        centre = (k.log() - (count - k).log()).masked_fill(full, 0.0) / self.alpha
        low = centre - highest.masked_fill(full, 0.0) - 0.01 / self.alpha
        high = centre + lowest.masked_fill(full, 0.0) + 0.01 / self.alpha
        parts = torch.arange(1, POINTS + 1, dtype=low.dtype, device=low.device) / (POINTS + 1)
        for _ in range(GRID_PASSES):
            tried = low.unsqueeze(1) + (high - low).unsqueeze(1) * parts  # (B, POINTS)
            sums = self._pass(over_blocks, tried)
            above, rest, _ = sums.unflatten(1, (3, POINTS)).unbind(1)
            excess = (above - k.unsqueeze(1)) + rest  # rises along the row
            low = torch.maximum(low, tried.masked_fill(excess >= 0, -math.inf).amax(dim=1))
            high = torch.minimum(high, tried.masked_fill(excess <= 0, math.inf).amin(dim=1))
        t = (low + high) / 2  # the middle also where the excess rounds to 0 on a whole stretch
        for _ in range(NEWTON_PASSES):
            sums = self._pass(over_blocks, t.unsqueeze(1))
            t = self._polish(sums, t, k).clamp(low, high)
        return t.masked_fill(full, math.inf).unsqueeze(1)

    def row_stats(self, scores: Tensor, positives: Positives, prepared: Tensor) -> Tensor:
        """Return how many are above the threshold, what corrects it to sum p, V, and t: (B, 4)."""
        finite = prepared.masked_fill(torch.isinf(prepared), 0.0)
        return torch.cat([self._levels(scores, finite), prepared], dim=1)

    def merge(self, stats: Tensor) -> Tensor:
        """Sum over the blocks; t is the same in all of them."""
        return torch.cat([stats[..., :3].sum(dim=0), stats[0, :, 3:]], dim=1)

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return the weighted sum of l(p) of each row, at the polished threshold."""
        t = self._polish(stats[:, :3], stats[:, 3], self._places(positives, stats[:, 0]))
        terms = -logsigmoid(self.alpha * (positive_scores + t[positives.rows]))  # (P,)
        return sum_by_row(terms * weights * positives.targets, positives.rows, len(stats))

    def _places(self, positives: Positives, like: Tensor) -> Tensor:
        """Return the k of each row (B,); positives that a reduction dropped do not count."""
        if self.k != "positives":
            return torch.full_like(like, float(self.k))
        marks = (positives.targets > 0).to(like.dtype)
        return sum_by_row(marks, positives.rows, len(like)).clamp(min=1.0)

    def _pass(self, over_blocks: OverBlocks, thresholds: Tensor) -> Tensor:
        return over_blocks(lambda scores: self._levels(scores, thresholds), _add)

    def _levels(self, scores: Tensor, thresholds: Tensor) -> Tensor:
        """Compute the two parts of sum p and its slope for each of M thresholds.

        (B, C) to (B, 3 M).

        sum p = #(z > 0) + sum of sigmoid(z) over z <= 0 - sum of sigmoid(-z) over z > 0. The count
        is exact and the rest keeps its relative precision, so that t is well defined even where
        all p round to 0 or 1: between a clear top k and a clear remainder.
        """
        above, rest, slope = [], [], []
        one = torch.ones((), dtype=scores.dtype, device=scores.device)
        for t in thresholds.unbind(1):
            z = torch.add((self.alpha * t).unsqueeze(1), scores, alpha=self.alpha)  # (B, C)
            above.append((z > 0).sum(dim=1, dtype=z.dtype))
            sign = torch.where(z > 0, -one, one)
            z = sign * z
            small = torch.sigmoid(z)  # the smaller of p and 1 - p
            del z  # a block is large: nothing stays longer than it is needed
            rest.append((sign * small).sum(dim=1))
            del sign
            small = small.detach()
            slope.append(self.alpha * (small.sum(dim=1) - small.square().sum(dim=1)))
        return torch.stack([*above, *rest, *slope], dim=1)

    def _polish(self, sums: Tensor, t: Tensor, k: Tensor) -> Tensor:
        above, rest, slope = sums.unbind(1)
        return t - ((above - k) + rest) / slope.detach().clamp(min=SMALLEST_SLOPE)


def _extremes(scores: Tensor) -> Tensor:
    """Return highest score, lowest score with its sign turned, and number of candidates: (B, 3)."""
    absent = torch.isneginf(scores)
    count = (~absent).sum(dim=1, dtype=scores.dtype)
    if scores.shape[1] == 0:
        return torch.stack([count - math.inf, count - math.inf, count], dim=1)
    lowest = -scores.masked_fill(absent, math.inf).amin(dim=1)
    return torch.stack([scores.amax(dim=1), lowest, count], dim=1)


def _merge_extremes(stats: Tensor) -> Tensor:
    return torch.cat([stats[..., :2].amax(dim=0), stats[..., 2:].sum(dim=0)], dim=1)


def _add(stats: Tensor) -> Tensor:
    return stats.sum(dim=0)
