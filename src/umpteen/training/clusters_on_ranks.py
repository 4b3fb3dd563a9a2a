"""Cluster vectors on all ranks: the first makes as many clusters as needed, each splits its own."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks
from umpteen.data.clusters import Halving

PARTS_PER_RANK = 4
"""Clusters for each rank at least, where ranks are no power of two: shares differ by a quarter."""


def clusters_on_ranks(
    vectors: Tensor, n_levels: int, *, generator: torch.Generator, ranks: Ranks
) -> tuple[Tensor, Tensor]:
    """Split vectors as ``balanced_clusters`` does; all ranks must call it with the same arguments.

    Clusters of a level do not depend on each other. The first rank makes the first levels, so that
    last bits in which machines may differ do not give ranks different clusters.

    Returns:
        ``order`` and ``bounds`` of one rank, on every rank.
    """
    n = len(vectors)
    halving = Halving.draw(n, n_levels, generator)
    bounds = torch.from_numpy(halving.bounds(n_levels))
    top = min(n_levels, first_levels(ranks.world))
    if not ranks.exchanges:
        return halving.split(vectors, 0, n_levels), bounds
    order = torch.arange(n, device=vectors.device)
    if ranks.first:
        order = halving.split(vectors, 0, top)
    order = ranks.from_first(order)
    starts = halving.bounds(top)
    shares = starts[ranks.bounds(2**top)]  # (world + 1,) where each rank's rows start
    own = ranks.part(ranks.bounds(2**top))
    parts = [
        halving.split(
            vectors, top, n_levels, order=order[starts[part] : starts[part + 1]], cluster=part
        )
        for part in range(own.start, own.stop)
    ]
    found = torch.cat([order[:0], *parts])
    return ranks.concatenate(found, shares), bounds


def first_levels(world: int) -> int:
    """Return how many levels the first rank makes.

    Example:
        >>> [first_levels(world) for world in (1, 2, 3, 4, 6)]
        [0, 1, 4, 2, 5]
    """
    exact = int(np.ceil(np.log2(world)))
    return exact if 2**exact == world else int(np.ceil(np.log2(PARTS_PER_RANK * world)))
