"""The loss of label weights on any device, with dense vectors of all pairs and all weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.host_loss import POWER_STEPS, POWER_TOLERANCE
from umpteen.ranking.lexical.pair_features import LabelledPairs, PairFeatures

AT_ONCE = 1 << 22
"""Weights that are squared in double precision at once."""


class PairSoftmax:
    """Sum over texts of the negative log-softmax of positives among the text's pairs.

    The positives of a text share the weight ``sqrt(number of positives)``: a compromise between
    one per text, which favours texts with few labels, and one per positive.
    """

    def __init__(self, pairs: LabelledPairs, device: torch.device | str = "cpu") -> None:
        changes = np.append(True, np.diff(pairs.rows) != 0)[: len(pairs.rows)]
        self.n = int(changes.sum())
        self.query = torch.from_numpy(np.cumsum(changes) - 1).to(device)
        positive = torch.from_numpy(pairs.positive.astype(np.float32)).to(device)
        per_query = self._sum(positive)
        mass = per_query.sqrt()
        self.mass = mass[self.query]
        self.wanted = positive * (mass / per_query.clamp_min(1))[self.query]

    def _sum(self, values: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(self.n, dtype=values.dtype, device=values.device)
        return zeros.index_add_(0, self.query, values)

    def loss_and_slopes(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and (P,) d loss / d score; a text without positives has none."""
        lowest = torch.full((self.n,), -torch.inf, dtype=scores.dtype, device=scores.device)
        best = lowest.scatter_reduce(0, self.query, scores, "amax")
        shifted = scores - best[self.query]
        powers = torch.exp(shifted)
        sums = self._sum(powers)[self.query]
        loss = (self.wanted.double() * (sums.log() - shifted).double()).sum()
        return loss, powers / sums * self.mass - self.wanted


@dataclass(frozen=True)
class RidgeLoss:
    """The loss of weights plus ``decay / 2 * |weights - anchor|^2``, on any device."""

    features: PairFeatures
    by_label: torch.Tensor
    """(P,) positions of the features' pairs in the order by text."""
    softmax: PairSoftmax
    anchor: torch.Tensor
    decay: float
    size: torch.Tensor
    """(W,) step of each weight."""
    eigenvalues_converged: bool

    @classmethod
    def of(
        cls,
        features: PairFeatures,
        by_label: NDArray[np.int64],
        pairs: LabelledPairs,
        anchor: NDArray[np.float32],
        ends: NDArray[np.integer],
        decay: float,
    ) -> RidgeLoss:
        """Compute the step of each weight; arguments are those of ``HostRidgeLoss.of``."""
        device, counts = features.values.device, np.diff(ends)
        owner = torch.from_numpy(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
        owner = owner.to(device)
        scale = features.squares().add_(decay).pow_(-0.25)
        eigenvalues, converged = largest_eigenvalues(features, owner, len(counts), scale)
        # Half the eigenvalue bounds the curvature of softmax; 0.55 covers the estimate from below.
        size = scale**2 / (decay * scale**2 + 0.55 * eigenvalues[owner])
        order, held = (torch.from_numpy(one).to(device) for one in (by_label, anchor))
        softmax = PairSoftmax(pairs, device)
        return cls(features, order, softmax, held, decay, size, converged)

    def __call__(self, weights: torch.Tensor) -> tuple[float, torch.Tensor, float]:
        """Return the value, the gradient (W,) and its norm in units of the steps."""
        scores = torch.empty(len(self.by_label), device=weights.device)
        scores[self.by_label] = self.features.times(weights)
        loss, slopes = self.softmax.loss_and_slopes(scores)
        away = weights - self.anchor
        gradient = self.features.transposed_times(slopes[self.by_label])
        squares = sum(float(part.double().square().sum()) for part in away.split(AT_ONCE))
        gradient.add_(away, alpha=self.decay)
        norm = float((gradient * self.size.sqrt()).norm())
        return float(loss) + self.decay / 2 * squares, gradient, norm


def largest_eigenvalues(
    matrix: PairFeatures, owner: torch.Tensor, n_labels: int, scale: torch.Tensor
) -> tuple[torch.Tensor, bool]:
    """Estimate the largest eigenvalue of each label's block of ``A.T @ A`` from below.

    Args:
        matrix: Its columns belong to one label each, and each row has columns of one label.
        owner: (W,) the label of each column.
        n_labels: L.
        scale: (W,) factors of the columns; A is the matrix with scaled columns.

    Returns:
        (L,) from power iteration on all blocks at once, and whether all converged.
    """
    vector = torch.ones(len(owner), device=owner.device)

    def lengths(values: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(n_labels, device=owner.device)
        return zeros.index_add_(0, owner, values * values).sqrt_()

    found = lengths(vector)
    converged = False
    for _ in range(POWER_STEPS):
        before = found
        vector = vector / lengths(vector).clamp_min(1e-20)[owner]
        vector = scale * matrix.transposed_times(matrix.times(scale * vector))
        found = lengths(vector)
        converged = bool(((found - before).abs() <= POWER_TOLERANCE * found).all())
    return found, converged
