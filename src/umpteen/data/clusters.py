"""Balanced 2-means, level by level: every cluster of a level is split at once, by array code.

On a CPU, clusters that fit the cache of a core are split to the end one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROWS_PER_PIECE = 512
SAMPLED_ROWS = 1 << 16
"""On a CPU, rows that centres are found on where there are at least twice as many; the last round
orders all rows."""
MIN_SAMPLED = 32
"""Rows that stand for a cluster at least."""
BLOCK_NUMBERS = 1 << 18
"""Numbers of the vectors of a cluster that is split to the end by itself on a CPU: they stay in the
cache of a core."""


def balanced_clusters(
    vectors: Tensor, n_levels: int, *, generator: torch.Generator, n_iterations: int = 8
) -> tuple[Tensor, Tensor]:
    """Split vectors into 2 ** n_levels clusters whose sizes differ by at most one.

    Each level splits each cluster in two halves: two members at random are the first centres;
    points are ordered by how much nearer they are to one than to the other, the nearer half goes
    left, the rest right, and the centres become the halves' means; a fixed number of times. On a
    CPU all but the last time are done on a sample of many rows: work is N D per level.

    Sizes follow from N alone, so the host never waits for the device. Memory is two copies of the
    vectors, a third in float32 where they are not, and some 100 bytes for each. The result is the
    same each time: no sum depends on the order in which threads come by.

    Args:
        vectors: (N, D), unit length or not; compared by inner product, summed in float32.
        n_levels: Number of times everything is halved.
        generator: On the CPU; chooses the first centres.
        n_iterations: Rounds per level.

    Returns:
        ``order`` (N,), the rows sorted by cluster, and ``bounds`` (2 ** n_levels + 1,), where each
        cluster starts in it.
    """
    halving = Halving.draw(len(vectors), n_levels, generator, n_iterations)
    order = halving.split(vectors, 0, n_levels)
    return order, _send(halving.bounds(n_levels), vectors.device)


@dataclass(frozen=True)
class Halving:
    """Rows that are halved again and again, with all that chance decides.

    The clusters of a level do not depend on each other: ``split`` of one cluster after the other,
    or of each on another machine, leads to the same order.
    """

    n: int
    """Rows of all clusters."""
    draws: tuple[NDArray[np.float64], ...]
    """For each level, (clusters, 2) numbers in [0, 1) that choose the first centres."""
    n_iterations: int = 8

    @classmethod
    def draw(
        cls, n: int, n_levels: int, generator: torch.Generator, n_iterations: int = 8
    ) -> Halving:
        """Draw what chooses the first centres of all levels."""
        draws = [
            torch.rand(2**level, 2, generator=generator, dtype=torch.float64).numpy()
            for level in range(n_levels)
        ]
        return cls(n, tuple(draws), n_iterations)

    def bounds(self, level: int) -> NDArray[np.int64]:
        """Return where each cluster of a level starts, and N: (2 ** level + 1,)."""
        bounds = np.array([0, self.n])
        for _ in range(level):
            middle = (bounds[:-1] + bounds[1:] + 1) // 2  # the left half gets the odd one
            bounds = np.append(np.stack([bounds[:-1], middle], axis=1).reshape(-1), self.n)
        return bounds

    def split(
        self,
        vectors: Tensor,
        first_level: int,
        last_level: int,
        *,
        order: Tensor | None = None,
        cluster: int = 0,
    ) -> Tensor:
        """Return the rows of one cluster, sorted by the clusters of a later level.

        Args:
            vectors: (N, D), all rows.
            first_level: The level of the cluster.
            last_level: The level to split it to.
            order: Its rows, sorted by nothing in particular but always alike; None for all rows.
            cluster: Its number within its level.
        """
        if order is None:
            order, placed = torch.arange(self.n, device=vectors.device), vectors
        else:
            placed = vectors.index_select(0, order)  # rows of a cluster are neighbours
        level, clusters = first_level, range(cluster, cluster + 1)
        while level < last_level and len(order):
            if level > first_level and self._is_small(level, vectors):
                return self._one_by_one(vectors, level, last_level, order, clusters)
            order, placed = self._halve(placed, order, level, clusters)
            level, clusters = level + 1, range(2 * clusters.start, 2 * clusters.stop)
        return order

    def _is_small(self, level: int, vectors: Tensor) -> bool:
        """Return whether a cluster fits the cache, and those of the level before did not."""
        numbers = -(-self.n // 2**level) * vectors.shape[1]
        return vectors.device.type == "cpu" and numbers <= BLOCK_NUMBERS < 2 * numbers

    def _one_by_one(
        self, vectors: Tensor, level: int, last_level: int, order: Tensor, clusters: range
    ) -> Tensor:
        sizes = np.diff(self.bounds(level)[clusters.start : clusters.stop + 1])
        parts = [
            self.split(vectors, level, last_level, order=part, cluster=cluster)
            for part, cluster in zip(order.split(sizes.tolist()), clusters, strict=True)
        ]
        return torch.cat(parts)

    def _halve(
        self, placed: Tensor, order: Tensor, level: int, clusters: range
    ) -> tuple[Tensor, Tensor]:
        """Return the order and the vectors, each cluster's left half before its right one."""
        device = order.device
        bounds = self.bounds(level)[clusters.start : clusters.stop + 1]
        bounds = bounds - bounds[0]
        starts, sizes = bounds[:-1], np.diff(bounds)
        left = (sizes + 1) // 2
        pieces = _pieces(np.stack([left, sizes - left], axis=1).reshape(-1), device)
        cluster = torch.repeat_interleave(
            torch.arange(len(starts), device=device), _send(sizes, device), output_size=len(order)
        )  # (n,) ascending along the order
        picks = _first_centres(starts, sizes, self.draws[level][clusters.start : clusters.stop])
        centres = placed[_send(picks, device)].float()  # (2 clusters, D)
        n_iterations, each = self.n_iterations, _sampled_of_each(self.n, 2**level, device)
        if each and n_iterations > 1:
            centres = _sampled_centres(placed, starts, sizes, centres, each, n_iterations - 1)
            n_iterations = 1
        order, placed, _ = _iterate(placed, order, cluster, pieces, centres, n_iterations)
        return order, placed


def _sampled_of_each(n_rows: int, n_clusters: int, device: torch.device) -> int:
    """Return how many rows of each cluster stand for it; 0 where all rows are used."""
    each = 2 * max(SAMPLED_ROWS // (2 * n_clusters), MIN_SAMPLED // 2)
    return each if device.type == "cpu" and 2 * each * n_clusters <= n_rows else 0


def _sampled_centres(
    placed: Tensor,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    centres: Tensor,
    each: int,
    n_iterations: int,
) -> Tensor:
    """Return centres from as many rows of each cluster, evenly spaced along its last order."""
    places = starts[:, None] + sizes[:, None] * np.arange(each) // each
    sample = placed.index_select(0, torch.from_numpy(places.reshape(-1)))
    cluster = torch.arange(len(starts)).repeat_interleave(each)
    pieces = _pieces(np.full(2 * len(starts), each // 2), placed.device)
    return _iterate(sample, cluster, cluster, pieces, centres, n_iterations)[2]


def _iterate(
    placed: Tensor,
    order: Tensor,
    cluster: Tensor,
    pieces: tuple[Tensor, Tensor],
    centres: Tensor,
    n_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Order the rows of each cluster by their lean, then take the halves' means as centres."""
    for _ in range(n_iterations):
        direction = centres[0::2] - centres[1::2]  # (clusters, D)
        places = torch.argsort(_keys(cluster, _lean(placed, direction, cluster)), stable=True)
        # index_select copies rows whole, which [] does not.
        order, placed = order[places], placed.index_select(0, places)
        centres = _means(placed, *pieces)
    return order, placed, centres


def _first_centres(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], draws: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return (2 clusters,) places of two members of each cluster; of an empty one, any place."""
    first = (draws[:, 0] * sizes).astype(np.int64)
    # The second centre is another member: a shift of 1 .. size - 1.
    shift = 1 + (draws[:, 1] * (sizes - 1).clip(min=1)).astype(np.int64)
    second = (first + shift) % sizes.clip(min=1)
    picks = np.stack([first, second], axis=1) + starts[:, None]
    places: NDArray[np.int64] = picks.clip(max=starts[-1] + sizes[-1] - 1).reshape(-1)
    return places


def _keys(cluster: Tensor, lean: Tensor) -> Tensor:
    """Return one int64 for each point that rises with its cluster, then as its lean falls.

    Sorting by it equals a stable sort by lean, then one by cluster, at the cost of one.
    """
    bits = (0.0 - lean).view(torch.int32)  # 0.0 - 0.0 is 0.0: no negative zero beside it
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats fall as integers; turn them
    return (cluster << 32) + rising


def _lean(placed: Tensor, direction: Tensor, cluster: Tensor) -> Tensor:
    """Return how much nearer each point is to its cluster's left centre.

    In blocks of bounded size.
    """
    # Small blocks stay in the caches of a CPU; a GPU is faster with few blocks.
    block = max(1, (1 << (26 if placed.is_cuda else 20)) // max(1, placed.shape[1]))
    parts = [
        (part.float() * direction.index_select(0, own)).sum(dim=1)
        for part, own in zip(placed.split(block), cluster.split(block), strict=True)
    ]
    return torch.cat(parts)


def _pieces(sizes: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return runs of rows cut in pieces: the length of each piece, and the pieces of each run."""
    counts = np.maximum(1, -(-sizes // ROWS_PER_PIECE))
    lengths = np.full(counts.sum(), ROWS_PER_PIECE)
    lengths[np.cumsum(counts) - 1] = sizes - (counts - 1) * ROWS_PER_PIECE
    return _send(lengths, device), _send(counts, device)


def _means(placed: Tensor, lengths: Tensor, counts: Tensor) -> Tensor:
    """Compute unit means of consecutive runs of rows, given as pieces.

    In two steps because a GPU gives a run and a column to one thread: two runs of a million rows
    would keep a few hundred threads busy for a second.
    """
    # unsafe: without the check of the lengths, for which the host would wait.
    sums = torch.segment_reduce(placed.float(), "sum", lengths=lengths, unsafe=True)
    sums = torch.segment_reduce(sums, "sum", lengths=counts, unsafe=True)
    return torch.nn.functional.normalize(sums, dim=1)


def _send(array: NDArray[np.int64], device: torch.device) -> Tensor:
    """Copy to the device without waiting for the work that is queued there."""
    return torch.from_numpy(array).to(device, non_blocking=True)
