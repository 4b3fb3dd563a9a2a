"""Approximate search for many queries: labels in clusters, each query against the nearest few.

Work for a query is about 4 sqrt(L) cluster centres and ``probes`` clusters of sqrt(L) / 4 labels,
where an exact search has L labels. Queries that look into the same cluster are multiplied with it
together, in one matrix product: with many queries that is faster than a search one by one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.index import base
from umpteen.types import TopK

PROBES = 32
ROUNDS = 5
SAMPLED = 64
"""Vectors for each cluster that centres are found on."""
MAX_PIECE = 2.0
"""Largest piece of a cluster, as a multiple of the mean size."""
ROWS_AT_ONCE = 8192
MEMORY_BYTES = 256 << 20
"""Of the scores of a block of queries."""


class ClusterSearch:
    """Search by inner product in clusters of labels; nothing is stored on disk.

    For refreshes, where queries come by the hundred thousand and an index serves once. To answer
    texts, use an index of ``INDEXES``.

    Args:
        vectors: (L, D), on the device to search on.
        seed: Chooses the sample that clusters are found on.
        probes: Clusters that a query is compared with; None for 32.
        memory_bytes: What the scores of a block of queries may take.
        ranks: Who makes the clusters; all must have the same vectors and call it together.
    """

    def __init__(
        self,
        vectors: Tensor,
        *,
        seed: int = 0,
        probes: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        self.n_labels, self.dim = vectors.shape
        centres = _k_means(vectors, n_clusters_of(self.n_labels), seed, ranks)
        found = _nearest(torch.nn.functional.normalize(vectors.float(), dim=1), centres, ranks)
        order = found.argsort(stable=True)
        # Clusters are cut into pieces: scores of all are one matrix.
        limit = max(1, round(MAX_PIECE * self.n_labels / len(centres)))
        pieces, self.sizes = _pieces(found[order], limit)
        self.width = int(self.sizes.max())
        bounds = torch.cat([self.sizes.new_zeros(1), self.sizes.cumsum(0)])
        self.bounds = bounds.tolist()
        self.placed = vectors.index_select(0, order).float()
        self.centres = torch.nn.functional.normalize(
            torch.segment_reduce(self.placed, "mean", lengths=self.sizes, unsafe=True), dim=1
        )
        places = torch.arange(len(order), device=order.device) - bounds[:-1][pieces]
        self.members = order.new_full((len(self.sizes), self.width), -1)
        self.members[pieces, places] = order
        self.cluster_of, self.place_of = torch.empty_like(order), torch.empty_like(order)
        self.cluster_of[order], self.place_of[order] = pieces, places
        self.probes = min(probes or PROBES, len(self.sizes))
        self.queries_at_once = max(1, memory_bytes // (4 * self.probes * self.width))

    def search(self, queries: Tensor, k: int, *, exclude: NDArray[np.int64] | None = None) -> TopK:
        """Return the best labels of each query among those of the clusters it is compared with.

        Args:
            queries: (B, D), on the device of the vectors.
            k: How many labels to return.
            exclude: (M, 2) pairs (query position, label row) that must not be returned.

        Returns:
            (B, k) rows and scores; -1 and -inf where the clusters have fewer.
        """
        pairs = base.check_exclude(exclude, len(queries), self.n_labels)
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        rows = np.full((len(queries), k), -1, np.int64)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        for start in range(0, len(queries), self.queries_at_once):
            stop = min(start + self.queries_at_once, len(queries))
            first, last = np.searchsorted(pairs[:, 0], [start, stop])
            own = torch.from_numpy(pairs[first:last] - [start, 0]).to(self.placed.device)
            found, values = self._block(queries[start:stop].float(), k, own)
            rows[start:stop, : found.shape[1]] = found.cpu().numpy()
            scores[start:stop, : found.shape[1]] = values.cpu().numpy()
        return TopK(rows, scores)

    def _block(self, queries: Tensor, k: int, own: Tensor) -> tuple[Tensor, Tensor]:
        probed = (queries @ self.centres.T).topk(self.probes, dim=1).indices  # (B, P)
        scores = self._scores(queries, probed)
        hits = probed[own[:, 0]] == self.cluster_of[own[:, 1], None]  # (M, P), at most one each
        pair, slot = hits.nonzero(as_tuple=True)
        place = slot * self.width + self.place_of[own[pair, 1]]
        scores[own[pair, 0], place] = -torch.inf
        best, places = scores.topk(min(k, scores.shape[1]), dim=1)
        clusters = probed.gather(1, places // self.width)
        rows = self.members[clusters, places % self.width]
        return rows.masked_fill(best == -torch.inf, -1), best

    def _scores(self, queries: Tensor, probed: Tensor) -> Tensor:
        """Return (B, P * width) scores; -inf where a cluster has fewer labels than others."""
        flat = probed.flatten()
        order = flat.argsort()
        counts = torch.bincount(flat, minlength=len(self.sizes)).tolist()
        scores = queries.new_full((len(flat), self.width), -torch.inf)
        done = 0
        for cluster, count in enumerate(counts):
            if count:
                pairs = order[done : done + count]
                labels = self.placed[self.bounds[cluster] : self.bounds[cluster + 1]]
                found = queries.index_select(0, pairs // self.probes) @ labels.T
                scores[pairs, : len(labels)] = found
                done += count
        return scores.view(len(queries), -1)


def _k_means(vectors: Tensor, n_clusters: int, seed: int, ranks: Ranks) -> Tensor:
    """Return unit centres of clusters, from a sample of the vectors."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(vectors), generator=generator)[: SAMPLED * n_clusters]
    sample = vectors.index_select(0, drawn.to(vectors.device)).float()
    sample = torch.nn.functional.normalize(sample, dim=1)
    centres = sample[:n_clusters]
    for _ in range(ROUNDS):
        found = _nearest(sample, centres, ranks)
        order = found.argsort(stable=True)  # sums in the order of rows are the same each time
        counts = torch.bincount(found, minlength=len(centres))
        sums = torch.segment_reduce(sample[order], "sum", lengths=counts, unsafe=True)
        kept = torch.where(counts[:, None] > 0, sums, centres)
        centres = torch.nn.functional.normalize(kept, dim=1)
    return centres


def _nearest(vectors: Tensor, centres: Tensor, ranks: Ranks) -> Tensor:
    """Return the nearest centre of each vector, found by each rank for an even share of them."""
    bounds = ranks.bounds(len(vectors))
    own = ranks.part(bounds)
    blocks = vectors[own.start : own.stop].split(ROWS_AT_ONCE)
    found = torch.cat([(block @ centres.T).argmax(dim=1) for block in blocks])
    return ranks.concatenate(found, bounds)


def _pieces(clusters: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Return the piece of each row, and the size of each piece.

    Args:
        clusters: (L,) ascending.
        limit: Rows of a piece at most.
    """
    counts = torch.bincount(clusters)
    starts = counts.cumsum(0) - counts
    within = torch.arange(len(clusters), device=clusters.device) - starts[clusters]
    pieces = (counts + limit - 1) // limit
    numbers = (pieces.cumsum(0) - pieces)[clusters] + within // limit
    return numbers, torch.bincount(numbers)


def n_clusters_of(n_labels: int) -> int:
    """Return how many clusters labels have: about 4 sqrt(L).

    Example:
        >>> [n_clusters_of(n) for n in (4, 10_000, 250_000)]
        [4, 400, 2000]
    """
    return max(1, min(n_labels, round(4 * math.sqrt(n_labels))))


def products_per_query(n_labels: int, probes: int = PROBES) -> float:
    """Return how many vectors a query is multiplied with: centres, and labels of its clusters.

    Example:
        >>> products_per_query(250_000), products_per_query(1_000_000)
        (6000.0, 12000.0)
    """
    clusters = n_clusters_of(n_labels)
    return clusters + min(probes, clusters) * n_labels / clusters
