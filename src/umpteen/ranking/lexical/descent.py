"""Accelerated descent on sparse label weights: softmax over each text's pairs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.pair_features import PairFeatures, pair_features

POWER_STEPS = 5
POWER_TOLERANCE = 0.1
"""Relative change of an eigenvalue in the last power step below which it counts as converged."""
GRADIENT_TOLERANCE = 1e-3
"""Gradient norm, relative to that of the start, below which descent has converged."""
AT_ONCE = 1 << 22
"""Weights that are squared in double precision at once."""


@dataclass(frozen=True)
class LabelledPairs:
    """P pairs of text and label, grouped by text."""

    rows: NDArray[np.int64]
    """(P,) non-decreasing."""
    labels: NDArray[np.int64]
    positive: NDArray[np.bool_]


@dataclass(frozen=True)
class DescentResult:
    """Weights and how descent ended."""

    weights: NDArray[np.float32]
    """(W,) in the order of the sparsity pattern."""
    steps: int
    """Steps taken."""
    initial_loss: float
    loss: float
    """Never above ``initial_loss``."""
    stopped_by: str
    """``gradient`` (converged), ``max_steps``, ``time`` or ``divergence``."""
    eigenvalues_converged: bool

    @property
    def converged(self) -> bool:
        """Whether the gradient fell below the tolerance."""
        return self.stopped_by == "gradient"


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
    """The loss of weights plus ``decay / 2 * |weights - anchor|^2``, and its gradient."""

    features: PairFeatures
    by_label: torch.Tensor
    """(P,) positions of the features' pairs in the order by text."""
    softmax: PairSoftmax
    anchor: torch.Tensor
    decay: float

    def __call__(self, weights: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Return the value and the gradient (W,)."""
        scores = torch.empty(len(self.by_label), device=weights.device)
        scores[self.by_label] = self.features.times(weights)
        loss, slopes = self.softmax.loss_and_slopes(scores)
        away = weights - self.anchor
        gradient = self.features.transposed_times(slopes[self.by_label])
        squares = sum(float(part.double().square().sum()) for part in away.split(AT_ONCE))
        return float(loss) + self.decay / 2 * squares, gradient.add_(away, alpha=self.decay)


def descend(
    queries: sp.csr_matrix,
    pattern: sp.csr_matrix,
    anchor: NDArray[np.float32],
    start: NDArray[np.float32],
    pairs: LabelledPairs,
    *,
    steps: int,
    decay: float,
    device: torch.device | str = "cpu",
    until: float = np.inf,
) -> DescentResult:
    """Minimize the softmax loss plus ``decay / 2 * |weights - anchor|^2`` by Nesterov's method.

    A weight's step is proportional to one over the root of its own curvature, times one over the
    largest curvature of its label in these units, estimated by power iteration. Adam generalizes
    worse here: it ignores the geometry of tf-idf, in which a rare term moves little. Momentum
    restarts where the loss rises, and the step is halved where it rises above the start.

    Args:
        queries: (N, V).
        pattern: (L, V); which terms a label has weights for.
        anchor: (W,) in the order of the pattern.
        start: (W,) initial weights.
        pairs: LabelledPairs that are compared.
        steps: The most steps.
        decay: Strength of the pull to the anchor.
        device: Where to compute.
        until: In ``time.monotonic``; no further step after it.

    Returns:
        Weights whose loss is never above that of ``start``.
    """
    order = np.argsort(pairs.labels, kind="stable")
    if not len(order):
        return DescentResult(start.copy(), 0, 0.0, 0.0, "gradient", True)
    matrix = pair_features(queries, pattern, pairs.rows[order], pairs.labels[order], device=device)
    by_label = torch.from_numpy(order).to(device)
    held = torch.from_numpy(anchor).to(device)
    objective = RidgeLoss(matrix, by_label, PairSoftmax(pairs, device), held, decay)
    counts = np.diff(pattern.indptr)
    owner = torch.from_numpy(np.repeat(np.arange(len(counts), dtype=np.int32), counts)).to(device)
    scale = matrix.squares().add_(decay).pow_(-0.25)
    eigenvalues, converged = largest_eigenvalues(matrix, owner, len(counts), scale)
    # Half the eigenvalue bounds the curvature of softmax; 0.55 covers the estimate from below.
    size = scale**2 / (decay * scale**2 + 0.55 * eigenvalues[owner])
    del scale, owner
    first = torch.from_numpy(start.copy()).to(device)
    weights, ended = _accelerated(objective, first, size, steps, until)
    taken, initial_loss, loss, stopped_by = ended
    return DescentResult(weights.cpu().numpy(), taken, initial_loss, loss, stopped_by, converged)


def _accelerated(
    objective: RidgeLoss, start: torch.Tensor, size: torch.Tensor, steps: int, until: float
) -> tuple[torch.Tensor, tuple[int, float, float, str]]:
    """Run Nesterov's method; return weights and (steps, initial loss, loss, stopped by)."""
    weights = ahead = start
    inertia, done, stopped_by = 1.0, 0, "max_steps"
    initial_loss = last = np.inf
    limit = 0.0
    while done < steps:
        value, gradient = objective(ahead)
        norm = float((gradient * size.sqrt()).norm())
        if done == 0:
            initial_loss, limit = value, GRADIENT_TOLERANCE * norm
        if not value <= initial_loss * (1 + 1e-6) + 1e-9:  # also catches NaN
            weights = ahead = start
            inertia, size, last, done = 1.0, size / 2, np.inf, done + 1
            continue
        if norm <= limit:
            weights, stopped_by = ahead, "gradient"
            break
        if value > last:
            inertia = 1.0
        moved = ahead - gradient.mul_(size)
        del gradient, ahead  # of many weights each takes a quarter of a GiB
        following = (1 + (1 + 4 * inertia**2) ** 0.5) / 2
        ahead = (moved - weights).mul_((inertia - 1) / following).add_(moved)
        weights, inertia, done, last = moved, following, done + 1, value
        if time.monotonic() > until and done < steps:
            stopped_by = "time"
            break
    loss = objective(weights)[0]
    if not done:
        initial_loss = loss
    if not loss <= initial_loss:
        return start, (done, initial_loss, initial_loss, "divergence")
    return weights, (done, initial_loss, loss, stopped_by)


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
