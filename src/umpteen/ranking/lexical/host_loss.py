"""The loss of label weights on the host: some labels at a time, shared by threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.threads import map_in_threads
from umpteen.ranking.lexical.pair_features import PairBlock, PairFeatures

POWER_STEPS = 5
POWER_TOLERANCE = 0.1
"""Relative change of an eigenvalue in the last power step below which it counts as converged."""
CURVATURE = 0.275
"""A quarter of the eigenvalue bounds the curvature of the logistic loss; the rest covers the
estimate of the eigenvalue from below."""


@dataclass(frozen=True)
class HostRidgeLoss:
    """``RidgeLoss`` on the host: one pass over the pairs of some labels at a time."""

    features: PairFeatures
    positive: NDArray[np.bool_]
    """(P,) in the order of the features."""
    offset: float
    anchor: NDArray[np.float32]
    decay: float
    size: torch.Tensor
    """(W,) step of each weight."""
    eigenvalues_converged: bool
    _gradient: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        features: PairFeatures,
        positive: NDArray[np.bool_],
        offset: float,
        anchor: NDArray[np.float32],
        ends: NDArray[np.integer],
        decay: float,
    ) -> HostRidgeLoss:
        """Compute the step of each weight from its own curvature and that of its label.

        Args:
            features: Of the pairs, sorted by label.
            positive: (P,) which pairs are right.
            offset: Score of a probability of one half.
            anchor: (W,).
            ends: (L + 1,) where the weights of each label begin.
            decay: Strength of the pull to the anchor.
        """
        size = np.empty(features.n_weights, np.float32)

        def fill(one: tuple[PairBlock, sp.csr_matrix]) -> bool:
            block, matrix = one
            size[block.weights], converged = _step_sizes(block, matrix, ends, decay)
            return converged

        converged = all(list(map_in_threads(fill, features.host_blocks())))
        sizes, gradient = torch.from_numpy(size), np.empty(len(size), np.float32)
        return cls(features, positive, offset, anchor, decay, sizes, converged, gradient)

    def __call__(self, weights: torch.Tensor) -> tuple[float, torch.Tensor, float]:
        """Return the value, the gradient (W,) until the next call, and its norm in steps."""
        given, size, gradient = weights.numpy(), self.size.numpy(), self._gradient

        def pull(one: tuple[PairBlock, sp.csr_matrix]) -> tuple[float, float]:
            block, matrix = one
            slopes = matrix @ given[block.weights]
            slopes -= np.float32(self.offset)
            loss = logistic_slopes_(slopes, self.positive[block.pairs])
            away = given[block.weights] - self.anchor[block.weights]
            wide = away.astype(np.float64)
            own = matrix.T @ slopes
            away *= np.float32(self.decay)
            own += away
            gradient[block.weights] = own
            own *= own
            return loss + self.decay / 2 * float(wide @ wide), float(own @ size[block.weights])

        parts = list(map_in_threads(pull, self.features.host_blocks()))
        loss, norms = (sum(some) for some in zip(*parts, strict=True))
        return loss, torch.from_numpy(gradient), norms**0.5


def logistic_slopes_(scores: NDArray[np.float32], positive: NDArray[np.bool_]) -> float:
    """Replace scores (P,) by the slopes of the logistic loss, and return the loss."""
    np.negative(scores, out=scores, where=positive)
    powers = np.exp(-np.abs(scores))  # at most 1
    over = np.maximum(scores, 0)
    loss = float(over.sum(dtype=np.float64) + np.log1p(powers).sum(dtype=np.float64))
    np.copyto(over, powers)
    np.copyto(over, np.float32(1), where=scores >= 0)
    np.divide(over, 1 + powers, out=scores)
    np.negative(scores, out=scores, where=positive)
    return loss


def _step_sizes(
    block: PairBlock, matrix: sp.csr_matrix, ends: NDArray[np.integer], decay: float
) -> tuple[NDArray[np.float32], bool]:
    """Return the step of each weight of a block, and whether power iteration converged."""
    first, last = block.labels.start, block.labels.stop
    counts = np.diff(ends[first : last + 1])
    owner = np.repeat(np.arange(last - first), counts)
    squared = sp.csr_matrix((matrix.data**2, matrix.indices, matrix.indptr), shape=matrix.shape)
    curvature = squared.T @ np.ones(matrix.shape[0], np.float32)
    scale = (curvature + np.float32(decay)) ** np.float32(-0.25)
    eigenvalues, converged = largest_eigenvalues(matrix, owner, last - first, scale)
    return scale**2 / (decay * scale**2 + np.float32(CURVATURE) * eigenvalues[owner]), converged


def largest_eigenvalues(
    matrix: sp.csr_matrix, owner: NDArray[np.int64], n_labels: int, scale: NDArray[np.float32]
) -> tuple[NDArray[np.float32], bool]:
    """Do what ``device_loss.largest_eigenvalues`` does, for a sparse matrix on the host."""
    vector: NDArray[np.float32] = np.ones(len(owner), np.float32)

    def lengths(values: NDArray[np.float32]) -> NDArray[np.float32]:
        found = np.bincount(owner, values * values, minlength=n_labels)
        return np.sqrt(found).astype(np.float32)

    found = lengths(vector)
    converged = False
    for _ in range(POWER_STEPS):
        before = found
        vector /= np.maximum(lengths(vector), np.float32(1e-20))[owner]
        vector = np.asarray(scale * (matrix.T @ (matrix @ (scale * vector))), np.float32)
        found = lengths(vector)
        converged = bool((np.abs(found - before) <= POWER_TOLERANCE * found).all())
    return found, converged
