"""Which queries go together in a batch: a pure function of seed, epoch and clusters.

Nothing here keeps a position: the plan of an epoch can be made again at any time, so resuming in
the middle of one costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def shuffled_batches(n_queries: int, batch_size: int, *, seed: int, epoch: int) -> list[Rows]:
    """All queries in random order, cut into batches of nearly equal size."""
    order = np.random.default_rng([seed, epoch, 1]).permutation(n_queries)
    return cut(order, batch_size)


def clustered_batches(
    order: Rows, bounds: Rows, batch_size: int, *, seed: int, epoch: int
) -> list[Rows]:
    """Clusters in random order, joined and cut into batches.

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
    clusters = [order[bounds[c] : bounds[c + 1]] for c in rng.permutation(len(bounds) - 1)]
    clusters = [rng.permutation(c) for c in clusters if len(c)]
    largest = max((len(c) for c in clusters), default=0)
    if 2 * largest > batch_size:
        return clusters
    return cut(np.concatenate(clusters), batch_size) if clusters else []


def cluster_levels(n_queries: int, cluster_size: int) -> int:
    """How often to halve n queries so that clusters come nearest to the given size.

    Example:
        >>> cluster_levels(1000, 250), cluster_levels(5, 100)
        (2, 0)
    """
    return max(0, round(math.log2(max(1.0, n_queries / max(1, cluster_size)))))


def cut(order: Rows, batch_size: int) -> list[Rows]:
    """Cut into the fewest batches of at most batch_size, of nearly equal size; none of nothing."""
    if not len(order):
        return []
    n_batches = -(-len(order) // batch_size)
    return [np.ascontiguousarray(part) for part in np.array_split(order, n_batches)]


def step_seed(seed: int, step: int, parts: Sequence[int] = ()) -> int:
    """A 63-bit seed that depends on the run's seed, the step and nothing else."""
    state = np.random.SeedSequence([seed, step, *parts]).generate_state(1, np.uint64)[0]
    return int(state) >> 1
