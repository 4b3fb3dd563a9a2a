"""The loss of label weights on the host: some labels or some texts at a time, shared by threads."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.threads import map_in_threads
from umpteen.ranking.lexical.pair_features import LabelledPairs, PairBlock, PairFeatures

TEXT_PAIRS = 1 << 16
"""Pairs of some texts that a thread normalizes at once; their scores stay in its cache."""
POWER_STEPS = 5
POWER_TOLERANCE = 0.1
"""Relative change of an eigenvalue in the last power step below which it counts as converged."""


class HostSoftmax:
    """``PairSoftmax`` on the host, in place and for some texts at a time."""

    def __init__(self, pairs: LabelledPairs) -> None:
        self.starts = pairs.text_starts()
        self.positives = np.flatnonzero(pairs.positive)
        """Positions of positives among the pairs."""
        self.first_positive = np.searchsorted(self.positives, self.starts)
        self.each = np.diff(self.first_positive)
        cuts = np.arange(0, self.starts[-1], TEXT_PAIRS)
        bounds = np.unique(np.append(np.searchsorted(self.starts, cuts), len(self.starts) - 1))
        self.blocks = [slice(*own) for own in pairwise(bounds.tolist())]
        """Texts of each block."""

    def slopes_(self, scores: NDArray[np.float32]) -> float:
        """Replace the scores (P,) by the slopes of the loss, and return the loss."""
        return sum(map_in_threads(lambda texts: self._slopes_of(scores, texts), self.blocks))

    def _slopes_of(self, scores: NDArray[np.float32], texts: slice) -> float:
        first, last = int(self.starts[texts.start]), int(self.starts[texts.stop])
        own, starts = scores[first:last], self.starts[texts] - first
        counts = np.diff(np.append(starts, last - first))
        each = self.each[texts]
        mass = np.sqrt(each, dtype=np.float32)
        right = self.positives[self.first_positive[texts.start] : self.first_positive[texts.stop]]
        right = right - first
        share = np.repeat(mass / np.maximum(each, 1).astype(np.float32), each)
        own -= np.repeat(np.maximum.reduceat(own, starts), counts)
        lost = float(share.astype(np.float64) @ own[right])
        np.exp(own, out=own)
        sums = np.add.reduceat(own, starts)
        own *= np.repeat(mass / sums, counts)
        own[right] -= share
        return float(mass.astype(np.float64) @ np.log(sums)) - lost


@dataclass(frozen=True)
class HostRidgeLoss:
    """``RidgeLoss`` on the host. Buffers are kept: a step allocates a few blocks only."""

    features: PairFeatures
    by_label: NDArray[np.int64]
    """(P,) positions of the features' pairs in the order by text."""
    softmax: HostSoftmax
    anchor: NDArray[np.float32]
    decay: float
    size: torch.Tensor
    """(W,) step of each weight."""
    eigenvalues_converged: bool
    _scores: NDArray[np.float32]
    _gradient: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        features: PairFeatures,
        by_label: NDArray[np.int64],
        pairs: LabelledPairs,
        anchor: NDArray[np.float32],
        ends: NDArray[np.integer],
        decay: float,
    ) -> HostRidgeLoss:
        """Compute the step of each weight from its own curvature and that of its label.

        Args:
            features: Of the pairs, sorted by label.
            by_label: (P,) positions of these among the pairs.
            pairs: Sorted by text.
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
        buffers = np.empty(len(by_label), np.float32), np.empty(len(size), np.float32)
        softmax = HostSoftmax(pairs)
        sizes = torch.from_numpy(size)
        return cls(features, by_label, softmax, anchor, decay, sizes, converged, *buffers)

    def __call__(self, weights: torch.Tensor) -> tuple[float, torch.Tensor, float]:
        """Return the value, the gradient (W,) until the next call, and its norm in steps."""
        given, size = weights.numpy(), self.size.numpy()
        scores, gradient = self._scores, self._gradient

        def score(one: tuple[PairBlock, sp.csr_matrix]) -> None:
            block, matrix = one
            scores[self.by_label[block.pairs]] = matrix @ given[block.weights]

        def pull(one: tuple[PairBlock, sp.csr_matrix]) -> tuple[float, float]:
            block, matrix = one
            away = given[block.weights] - self.anchor[block.weights]
            wide = away.astype(np.float64)
            own = matrix.T @ scores[self.by_label[block.pairs]]
            away *= np.float32(self.decay)
            own += away
            gradient[block.weights] = own
            own *= own
            return float(wide @ wide), float(own @ size[block.weights])

        deque(map_in_threads(score, self.features.host_blocks()), maxlen=0)
        loss = self.softmax.slopes_(scores)
        parts = list(map_in_threads(pull, self.features.host_blocks()))
        squares, norms = (sum(some) for some in zip(*parts, strict=True))
        return loss + self.decay / 2 * squares, torch.from_numpy(gradient), norms**0.5


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
    # Half the eigenvalue bounds the curvature of softmax; 0.55 covers the estimate from below.
    return scale**2 / (decay * scale**2 + np.float32(0.55) * eigenvalues[owner]), converged


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
