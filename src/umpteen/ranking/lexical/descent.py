"""Accelerated descent on sparse label weights: logistic loss of pairs of text and label."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.device_loss import RidgeLoss
from umpteen.ranking.lexical.host_loss import HostRidgeLoss
from umpteen.ranking.lexical.pair_features import LabelledPairs, pair_features

GRADIENT_TOLERANCE = 1e-3
"""Gradient norm, relative to that of the start, below which descent has converged."""
RAISED = 4.0
"""Factor of the decay that is tried next, from ``NEARER`` of the way from the anchor."""
NEARER = 0.7
OFFSET_PAIRS, BISECTIONS, MAX_LOG_ODDS = 1 << 20, 40, 20.0
"""Pairs that the offset is computed from, halvings of its range, and how far it may be from a
score."""
Better = Callable[[NDArray[np.float32], NDArray[np.float32]], bool]
"""Whether the first weights (W,) are better than the second ones."""


@dataclass(frozen=True)
class DescentResult:
    """Weights and how descent ended."""

    weights: NDArray[np.float32]
    """(W,) in the order of the sparsity pattern."""
    steps: int
    """Steps taken."""
    initial_loss: float
    loss: float
    """Never above ``initial_loss`` where the decay was not raised."""
    stopped_by: str
    """``gradient`` (converged), ``max_steps``, ``time`` or ``divergence``."""
    eigenvalues_converged: bool
    decay: float
    """At the end."""

    @property
    def converged(self) -> bool:
        """Whether the gradient fell below the tolerance."""
        return self.stopped_by == "gradient"


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
    better: Better | None = None,
) -> DescentResult:
    """Minimize the logistic loss plus ``decay / 2 * |weights - anchor|^2`` by Nesterov's method.

    The log-odds of a pair are its score minus an offset, which is the same for all pairs: the one
    at which the probabilities of ``start`` sum to the number of right pairs. Labels are independent
    of each other: a text of many labels does not distribute a probability of one among them.

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
        better: Compares weights. After the steps, ``RAISED`` times the decay is tried with half as
            many steps, again and again while that is better.

    Returns:
        Weights whose loss is never above that of ``start``, unless the decay was raised.
    """
    if not len(pairs.rows):
        return DescentResult(start.copy(), 0, 0.0, 0.0, "gradient", True, decay)
    matrix = pair_features(queries, pattern, pairs.rows, pairs.labels, device=device)
    kind = HostRidgeLoss if matrix.on_host else RidgeLoss
    weights = torch.from_numpy(start).to(device)
    offset = balancing_offset(matrix.times(weights).cpu().numpy(), pairs.positive)
    best: DescentResult | None = None
    while True:
        objective = kind.of(matrix, pairs.positive, offset, anchor, pattern.indptr, decay)
        converged = objective.eigenvalues_converged
        weights, ended = _accelerated(objective, weights, steps, until)
        del objective  # before there is another one
        found, taken = weights.cpu().numpy(), ended.steps
        if best is not None:
            taken += best.steps
            if better is None or not better(found, best.weights):
                return replace(best, steps=taken)
            ended = ended._replace(initial_loss=best.initial_loss)
        losses = ended.initial_loss, ended.loss
        best = DescentResult(found, taken, *losses, ended.stopped_by, converged, decay)
        if better is None or ended.stopped_by in ("time", "divergence"):
            return best
        decay, steps = RAISED * decay, max(1, steps // 2)
        nearer = anchor + np.float32(NEARER) * (found - anchor)
        weights = torch.from_numpy(nearer).to(device)


def balancing_offset(scores: NDArray[np.float32], positive: NDArray[np.bool_]) -> float:
    """Return the offset at which probabilities sum to the number of right pairs.

    Args:
        scores: (P,); at most ``OFFSET_PAIRS`` of them are used, evenly spaced.
        positive: (P,).
    """
    step = -(-len(scores) // OFFSET_PAIRS)
    some, right = scores[::step].astype(np.float64), float(positive[::step].sum())
    low, high = some.min() - MAX_LOG_ODDS, some.max() + MAX_LOG_ODDS
    for _ in range(BISECTIONS):
        offset = (low + high) / 2
        odds = np.exp(np.clip(some - offset, -MAX_LOG_ODDS, MAX_LOG_ODDS))
        low, high = (offset, high) if float((odds / (1 + odds)).sum()) > right else (low, offset)
    return float((low + high) / 2)


class Ended(NamedTuple):
    """How Nesterov's method ended."""

    steps: int
    initial_loss: float
    loss: float
    stopped_by: str


def _accelerated(
    objective: RidgeLoss | HostRidgeLoss,
    start: torch.Tensor,
    steps: int,
    until: float,
) -> tuple[torch.Tensor, Ended]:
    """Run Nesterov's method.

    A weight's step is proportional to one over the root of its own curvature, times one over the
    largest curvature of its label in these units, estimated by power iteration. Adam generalizes
    worse here: it ignores the geometry of tf-idf, in which a rare term moves little. Momentum
    restarts where the loss rises, and the step is halved where it rises above the start.

    Vectors are changed in place: of many weights each takes a quarter of a GiB, and new memory
    takes longer than the arithmetic.
    """
    weights, ahead = start.clone(), start.clone()
    inertia, shrunk, done, stopped_by = 1.0, 1.0, 0, "max_steps"
    initial_loss = last = np.inf
    limit = 0.0
    while done < steps:
        value, gradient, norm = objective(ahead)
        if done == 0:
            initial_loss, limit = value, GRADIENT_TOLERANCE * norm
        if not value <= initial_loss * (1 + 1e-6) + 1e-9:  # also catches NaN
            weights.copy_(start)
            ahead.copy_(start)
            inertia, shrunk, last, done = 1.0, shrunk / 2, np.inf, done + 1
            continue
        if norm * shrunk**0.5 <= limit:
            weights, stopped_by = ahead, "gradient"
            break
        if value > last:
            inertia = 1.0
        following = (1 + (1 + 4 * inertia**2) ** 0.5) / 2
        moved = ahead.sub_(gradient.mul_(objective.size), alpha=shrunk)
        ahead = weights.sub_(moved).mul_((1 - inertia) / following).add_(moved)
        weights, inertia, done, last = moved, following, done + 1, value
        if done == steps:
            break
        if time.monotonic() > until:
            stopped_by = "time"
            break
    loss = objective(weights)[0]
    if not done:
        initial_loss = loss
    if not loss <= initial_loss:
        return start.clone(), Ended(done, initial_loss, initial_loss, "divergence")
    return weights, Ended(done, initial_loss, loss, stopped_by)
