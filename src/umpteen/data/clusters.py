"""Balanced 2-means, level by level: every cluster of a level is split at once, by array code."""

from __future__ import annotations

import torch
from torch import Tensor


def balanced_clusters(
    vectors: Tensor, n_levels: int, *, generator: torch.Generator, n_iterations: int = 8
) -> tuple[Tensor, Tensor]:
    """Split vectors into 2 ** n_levels clusters whose sizes differ by at most one.

    Each level splits each cluster in two halves: two members at random are the first centres;
    points are ordered by how much nearer they are to one than to the other, the nearer half goes
    left, the rest right, and the centres become the halves' means; a fixed number of times.

    Args:
        vectors: (N, D), unit length or not; compared by inner product.
        n_levels: Number of times everything is halved.
        generator: On the CPU; chooses the first centres.
        n_iterations: Rounds per level.

    Returns:
        ``order`` (N,), the rows sorted by cluster, and ``bounds`` (2 ** n_levels + 1,), where each
        cluster starts in it.
    """
    n = len(vectors)
    device = vectors.device
    order = torch.arange(n, device=device)
    bounds = torch.tensor([0, n], device=device)
    for _ in range(n_levels):
        order, bounds = _split(vectors, order, bounds, generator, n_iterations)
    return order, bounds


def _split(
    vectors: Tensor, order: Tensor, bounds: Tensor, generator: torch.Generator, n_iterations: int
) -> tuple[Tensor, Tensor]:
    if not len(order):
        return order, bounds.new_zeros(2 * len(bounds) - 1)
    starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
    n_clusters = len(starts)
    cluster = torch.repeat_interleave(
        torch.arange(n_clusters, device=order.device), sizes, output_size=len(order)
    )  # (N,) ascending along the order
    middle = starts + (sizes + 1) // 2  # the left half gets the odd one
    halves = torch.stack([middle - starts, bounds[1:] - middle], dim=1).reshape(-1)
    centres = _first_centres(vectors, order, starts, sizes, generator)  # (2 clusters, D)
    # In the order's own order: gathered once a round, and ever more locally as clusters shrink.
    placed = vectors.index_select(0, order)  # (N, D); copies rows whole, which [] does not
    for _ in range(n_iterations):
        direction = centres[0::2] - centres[1::2]  # (clusters, D)
        lean = _lean(placed, direction, cluster)  # (N,)
        # Stable sorts: by lean first, then by cluster, so each cluster keeps its own places.
        by_lean = torch.argsort(lean, descending=True, stable=True)
        places = by_lean[torch.argsort(cluster[by_lean], stable=True)]
        order, placed = order[places], placed.index_select(0, places)
        centres = _means(placed, halves)
    new_bounds = torch.stack([starts, middle], dim=1).reshape(-1)
    return order, torch.cat([new_bounds, bounds[-1:]])


def _first_centres(
    vectors: Tensor, order: Tensor, starts: Tensor, sizes: Tensor, generator: torch.Generator
) -> Tensor:
    draws = torch.rand(len(starts), 2, generator=generator, dtype=torch.float64).to(order.device)
    first = (draws[:, 0] * sizes).long()
    # The second centre is another member: a shift of 1 .. size - 1.
    shift = 1 + (draws[:, 1] * (sizes - 1).clamp(min=1)).long()
    second = (first + shift) % sizes.clamp(min=1)
    picks = torch.stack([first, second], dim=1) + starts[:, None]
    return vectors[order[picks.clamp(max=len(order) - 1).reshape(-1)]].float()


def _lean(placed: Tensor, direction: Tensor, cluster: Tensor) -> Tensor:
    """How much nearer each point is to its cluster's left centre, in blocks of bounded size."""
    # A CPU wants the block in its caches, a GPU wants few blocks.
    block = max(1, (1 << (26 if placed.is_cuda else 20)) // max(1, placed.shape[1]))
    parts = [
        (part.float() * direction.index_select(0, own)).sum(dim=1)
        for part, own in zip(placed.split(block), cluster.split(block), strict=True)
    ]
    return torch.cat(parts) if parts else placed.new_zeros(0)


def _means(placed: Tensor, sizes: Tensor) -> Tensor:
    """Unit means of consecutive runs of rows; sizes (n,) add up to N."""
    return torch.nn.functional.normalize(
        torch.segment_reduce(placed.float(), "sum", lengths=sizes), dim=1
    )
