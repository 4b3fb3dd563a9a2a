"""Descend on the labels' sparse weights: softmax over each query's pairs, a step size a label."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.overlaps import Overlaps, overlaps

POWER_STEPS = 5


@dataclass(frozen=True)
class Pairs:
    """P pairs of query and label, a query's one after the other."""

    rows: NDArray[np.int64]
    """(P,) rising."""
    labels: NDArray[np.int64]
    positive: NDArray[np.bool_]


@dataclass(frozen=True)
class Descent:
    """What descending did."""

    weights: NDArray[np.float32]
    """(W,) where the support has its entries."""
    steps: int
    """How many were taken."""


class PairSoftmax:
    """Minus log-softmax of positives among each query's pairs, added up, and its slopes.

    A query's positives share the weight ``sqrt(how many)``: between one say a query, which favours
    queries with few labels, and one a positive, which favours those with many.

    Args:
        pairs: A query's one after the other.
        device: Where slopes are wanted.
    """

    def __init__(self, pairs: Pairs, device: torch.device | str = "cpu") -> None:
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

    def slopes(self, scores: torch.Tensor) -> torch.Tensor:
        """(P,) d loss / d score; 0 for a query without positives."""
        lowest = torch.full((self.n,), -torch.inf, dtype=scores.dtype, device=scores.device)
        best = lowest.scatter_reduce(0, self.query, scores, "amax")
        powers = torch.exp(scores - best[self.query])
        return powers / self._sum(powers)[self.query] * self.mass - self.wanted


def descend(
    queries: sp.csr_matrix,
    support: sp.csr_matrix,
    anchor: NDArray[np.float32],
    start: NDArray[np.float32],
    pairs: Pairs,
    *,
    steps: int,
    decay: float,
    device: torch.device | str = "cpu",
    until: float = np.inf,
) -> Descent:
    """Nesterov's accelerated descent on the loss plus ``decay / 2 * |weights - anchor|^2``.

    Steps that are normalised for each weight (Adam) generalise worse here than those that keep
    some of the geometry of tf-idf, in which a rare word moves little. So a weight's step goes with
    one over the root of its own curvature, times one over an estimate of the label's curvature
    in these terms: half the largest eigenvalue of its pairs' words, by power steps.

    Args:
        queries: (N, V).
        support: (L, V); which words a label weighs.
        anchor: (W,) in the order of the support.
        start: (W,) where to start.
        pairs: What is compared.
        steps: How many.
        decay: How strongly weights are held.
        device: Where to compute.
        until: By ``time.monotonic``; no further step after it.

    Returns:
        Weights and steps.
    """
    order = np.argsort(pairs.labels, kind="stable")
    by_label = torch.from_numpy(order).to(device)
    matrix = overlaps(queries, support, pairs.rows[order], pairs.labels[order], device=device)
    loss = PairSoftmax(pairs, device)
    counts = np.diff(support.indptr)
    owner = torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(device)
    scale = matrix.squares().add_(decay).pow_(-0.25)
    curved = 0.55 * largest_eigenvalues(matrix, owner, len(counts), scale)[owner]
    size = scale**2 / (decay * scale**2 + curved)
    held = torch.from_numpy(anchor).to(device)
    weights = torch.from_numpy(start.copy()).to(device)
    ahead, inertia, done = weights, 1.0, 0
    scores = torch.empty(len(order), device=device)
    while done < steps and len(order):
        scores[by_label] = matrix.times(ahead)
        slopes = loss.slopes(scores)[by_label]
        change = matrix.turned_times(slopes).add_(ahead - held, alpha=decay)
        moved = ahead - size * change
        following = (1 + (1 + 4 * inertia**2) ** 0.5) / 2
        ahead = moved + (inertia - 1) / following * (moved - weights)
        weights, inertia, done = moved, following, done + 1
        if time.monotonic() > until:
            break
    return Descent(weights.cpu().numpy(), done)


def largest_eigenvalues(
    matrix: Overlaps, owner: torch.Tensor, n_labels: int, scale: torch.Tensor
) -> torch.Tensor:
    """(L,) of each label's block of ``A.T @ A`` with A the matrix of scaled columns, from below.

    Args:
        matrix: Its columns belong to one label each, and each row has columns of one label.
        owner: (W,) the label of each column.
        n_labels: L.
        scale: (W,) of the columns.

    Returns:
        All blocks at once by power steps.
    """
    vector = torch.ones(len(owner), device=owner.device)

    def lengths(values: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(n_labels, device=owner.device)
        return zeros.index_add_(0, owner, values * values).sqrt_()

    for _ in range(POWER_STEPS):
        vector = vector / lengths(vector).clamp_min(1e-20)[owner]
        vector = scale * matrix.turned_times(matrix.times(scale * vector))
    return lengths(vector)
