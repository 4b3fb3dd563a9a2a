"""The loss of label weights on any device, with dense vectors of all pairs and all weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.host_loss import CURVATURE, POWER_STEPS, POWER_TOLERANCE
from umpteen.ranking.lexical.pair_features import PairFeatures

AT_ONCE = 1 << 22
"""Weights that are squared in double precision at once."""


@dataclass(frozen=True)
class RidgeLoss:
    """The loss of weights plus ``decay / 2 * |weights - anchor|^2``, on any device.

    The loss of a pair is logistic: the score minus the offset is the log-odds of a right label.
    """

    features: PairFeatures
    signs: torch.Tensor
    """(P,) -1 for right pairs, 1 for wrong ones, in the order of the features."""
    offset: float
    anchor: torch.Tensor
    decay: float
    size: torch.Tensor
    """(W,) step of each weight."""
    eigenvalues_converged: bool

    @classmethod
    def of(
        cls,
        features: PairFeatures,
        positive: NDArray[np.bool_],
        offset: float,
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
        size = scale**2 / (decay * scale**2 + CURVATURE * eigenvalues[owner])
        signs = np.where(positive, np.float32(-1), np.float32(1))
        signs_there, held = (torch.from_numpy(one).to(device) for one in (signs, anchor))
        return cls(features, signs_there, offset, held, decay, size, converged)

    def __call__(self, weights: torch.Tensor) -> tuple[float, torch.Tensor, float]:
        """Return the value, the gradient (W,) and its norm in units of the steps."""
        loss, slopes = logistic_slopes(self.features.times(weights) - self.offset, self.signs)
        away = weights - self.anchor
        gradient = self.features.transposed_times(slopes)
        squares = sum(float(part.double().square().sum()) for part in away.split(AT_ONCE))
        gradient.add_(away, alpha=self.decay)
        norm = float((gradient * self.size.sqrt()).norm())
        return float(loss) + self.decay / 2 * squares, gradient, norm


def logistic_slopes(scores: torch.Tensor, signs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of the logistic loss and (P,) d loss / d score."""
    wrong = signs * scores
    loss = torch.nn.functional.softplus(wrong).sum(dtype=torch.float64)
    return loss, signs * torch.sigmoid(wrong)


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
