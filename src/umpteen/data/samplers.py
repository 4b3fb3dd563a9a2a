"""Which queries go together in a batch: a pure function of seed, epoch and clusters.

Nothing here keeps a position: the plan of an epoch can be made again at any time, so resuming in
the middle of one costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from umpteen.types import RowIndices

LARGEST_GROWN = 512
"""Where clusters that double stop growing."""


def shuffled_batches(n_queries: int, batch_size: int, *, seed: int, epoch: int) -> list[RowIndices]:
    """Shuffle all queries and cut them into batches of nearly equal size."""
    order = np.random.default_rng([seed, epoch, 1]).permutation(n_queries)
    return cut(order, batch_size)


def clustered_batches(
    order: RowIndices, bounds: RowIndices, batch_size: int, *, seed: int, epoch: int
) -> list[RowIndices]:
    """Shuffle clusters, join them and cut them into batches.

    Where the largest cluster is more than half a batch, clusters are batches by themselves;
    smaller ones are joined and cut, so that a batch is several tight groups.

    Args:
        order: (N,) query rows sorted by cluster.
        bounds: Where each cluster starts, and N.
        batch_size: Queries per batch.
        seed: The run's seed.
        epoch: The epoch to plan.

    Returns:
        The batches, every query in exactly one of them.
    """
    rng = np.random.default_rng([seed, epoch, 2])
    sizes = np.diff(bounds)
    if not len(order):
        return []
    chosen = rng.permutation(len(sizes))
    place = np.empty(len(sizes), np.int64)  # where in the new order each cluster comes
    place[chosen] = np.arange(len(sizes))
    # There may be as many clusters as half the queries, so nothing loops over them.
    joined = order[np.lexsort((rng.random(len(order)), np.repeat(place, sizes)))]
    if 2 * sizes.max() <= batch_size:
        return cut(joined, batch_size)
    parts = np.split(joined, np.cumsum(sizes[chosen])[:-1])
    return [np.ascontiguousarray(part) for part in parts if len(part)]


def grown_cluster_size(
    epoch: int, start: int, double_epochs: Sequence[int], batch_size: int
) -> int:
    """Return the size of clusters that starts small and doubles at the given epochs.

    It grows to 512 or the batch's size, whichever is smaller, and no further.

    Example:
        >>> [grown_cluster_size(epoch, 1, [10, 20], 1600) for epoch in (0, 9, 10, 20, 99)]
        [1, 1, 2, 4, 4]
    """
    doubled = start << sum(epoch >= at for at in double_epochs)
    return min(doubled, max(start, min(LARGEST_GROWN, batch_size)))


def coarser(bounds: RowIndices, cluster_size: int) -> RowIndices:
    """Join neighbouring clusters of repeated halving up to about the given size.

    Halving leaves each cluster next to its sibling, so every second bound is a level less. Clusters
    that are large enough stay as they are.

    Example:
        >>> coarser(np.array([0, 3, 5, 8, 10]), 5)
        array([ 0,  5, 10])
    """
    n_clusters = len(bounds) - 1
    wanted = 1 << cluster_levels(int(bounds[-1]), cluster_size)
    return bounds[:: max(1, n_clusters // wanted)]


def cluster_levels(n_queries: int, cluster_size: int) -> int:
    """Return how often to halve n queries so that clusters come nearest to the given size.

    Example:
        >>> cluster_levels(1000, 250), cluster_levels(5, 100)
        (2, 0)
    """
    return max(0, round(math.log2(max(1.0, n_queries / max(1, cluster_size)))))


def cut(order: RowIndices, batch_size: int) -> list[RowIndices]:
    """Cut into the fewest batches of at most batch_size, of nearly equal size; none of nothing."""
    if not len(order):
        return []
    n_batches = -(-len(order) // batch_size)
    return [np.ascontiguousarray(part) for part in np.array_split(order, n_batches)]


def step_seed(seed: int, step: int, parts: Sequence[int] = ()) -> int:
    """Return a 63-bit seed that depends on the run's seed, the step and nothing else."""
    state = np.random.SeedSequence([seed, step, *parts]).generate_state(1, np.uint64)[0]
    return int(state) >> 1
