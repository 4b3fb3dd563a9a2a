"""The labels nearest to each query that are not its own, a block of queries at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks, Shards
from umpteen.index.cluster_search import ClusterSearch
from umpteen.index.exact import ExactIndex
from umpteen.training.sharded_search import ShardedSearch
from umpteen.training.stage_log import QUIET, StageLog

QUERIES_PER_BLOCK = 1 << 17
CPU_BLOCK = 1 << 14
"""Queries between two reports of progress on a CPU."""
EXACT_PAIRS = 1 << 30
"""Queries times labels up to which a CPU compares all of them: some 10 seconds on two cores."""
MIN_CLUSTERED = 8192
"""Labels below which clusters save nothing."""
LABEL_CLUSTERS, MINING = "label clusters", "mining"
"""Kinds of stages."""


def is_clustered(search: str, n_queries: int, n_labels: int, *, cuda: bool) -> bool:
    """Return whether hard negatives are searched within clusters of labels.

    Example:
        >>> is_clustered("auto", 450_000, 300_000, cuda=False)
        True
    """
    if search != "auto":
        return search == "clusters"
    return not cuda and n_labels >= MIN_CLUSTERED and n_queries * n_labels > EXACT_PAIRS


def mine(
    queries: torch.Tensor,
    labels: torch.Tensor,
    targets: sp.csr_matrix,
    filters: NDArray[np.int64],
    kept: int,
    *,
    search: str = "auto",
    seed: int = 0,
    queries_per_block: int | None = None,
    log: StageLog = QUIET,
    shards: Shards | None = None,
    ranks: Ranks = ONE_RANK,
) -> NDArray[np.int32]:
    """Search each query's nearest labels, leaving out its positives and its filter pairs.

    The pairs to leave out are made for one block of queries while the one before is searched; of
    all queries they would take 16 bytes for each positive. On a GPU the search goes in two passes
    without a second look: of labels whose scores a bfloat16 product cannot distinguish, one may
    stand for another at the last places. On a CPU, above 2 ** 30 pairs of query and label, each
    query is compared with the labels of the nearest clusters alone.

    Args:
        queries: (N, D) vectors.
        labels: (L, D) vectors, on the same device.
        targets: (N, L) the queries' positives.
        filters: (M, 2) pairs (query, label) that are no negatives either.
        kept: How many labels to keep for each query.
        search: The setting ``batches.search``.
        seed: Of the clusters of labels, where labels are searched within clusters.
        queries_per_block: How many to search at once.
        log: Receives progress.
        shards: Which labels each rank holds, where ``labels`` are this rank's alone; all ranks
            then call this with the same queries, and nothing is searched within clusters.
        ranks: Who clusters the labels together, where all ranks have all of them and call this,
            each with its own queries.

    Returns:
        (N, kept) label rows, nearest first; -1 where there is none.
    """
    found = np.full((len(queries), kept), -1, np.int32)
    if not kept:
        return found
    index = _index(labels, len(queries), search, seed, log, shards, ranks)
    if queries_per_block is None:
        queries_per_block = QUERIES_PER_BLOCK if labels.is_cuda else CPU_BLOCK
    filters = filters[np.argsort(filters[:, 0], kind="stable")]
    starts = range(0, len(queries), queries_per_block)
    what = f"Mining hard negatives of {len(queries):,} texts among {targets.shape[1]:,} labels"
    with ThreadPoolExecutor(1) as helper, log.stage(what, kind=MINING, announced=False) as progress:
        made = [helper.submit(_own_pairs, targets, filters, 0, queries_per_block)]
        for start in starts:
            stop = start + queries_per_block
            pairs = made.pop().result()
            made.append(helper.submit(_own_pairs, targets, filters, stop, queries_per_block))
            top = index.search(queries[start:stop], kept, exclude=pairs)
            found[start:stop] = top.rows
            progress(min(stop, len(queries)), len(queries))
    return found


def _index(
    labels: torch.Tensor,
    n_queries: int,
    search: str,
    seed: int,
    log: StageLog,
    shards: Shards | None,
    ranks: Ranks,
) -> ClusterSearch | ExactIndex | ShardedSearch:
    if shards is not None:
        return ShardedSearch(_exact(labels, search) if len(labels) else None, shards)
    if is_clustered(search, n_queries, len(labels), cuda=labels.is_cuda):
        with log.stage(f"Clustering {len(labels):,} labels", kind=LABEL_CLUSTERS, announced=False):
            return ClusterSearch(labels, seed=seed, ranks=ranks)
    return _exact(labels, search)


def _exact(labels: torch.Tensor, search: str) -> ExactIndex:
    first_pass = search if search in ("bfloat16", "float8") else None
    if search == "auto" and labels.is_cuda:
        first_pass = "bfloat16"
    return ExactIndex.build(labels, first_pass=first_pass, recheck=False)


def _own_pairs(
    targets: sp.csr_matrix, filters: NDArray[np.int64], start: int, size: int
) -> NDArray[np.int64]:
    """Return (M, 2) pairs (query counted from the start, label) of a block.

    None beyond the last query.
    """
    offsets = targets.indptr[start : start + size + 1]
    if len(offsets) < 2:
        return np.empty((0, 2), np.int64)
    own = targets.indices[offsets[0] : offsets[-1]]
    first, last = np.searchsorted(filters[:, 0], [start, start + size])
    pairs = np.empty((len(own) + last - first, 2), np.int64)
    pairs[: len(own), 0] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs[: len(own), 1] = own
    pairs[len(own) :] = filters[first:last] - [start, 0]
    return pairs
