"""The labels nearest to each query that are not its own, a block of queries at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.index.exact import ExactIndex

QUERIES_PER_BLOCK = 1 << 17


def mine(
    queries: torch.Tensor,
    labels: torch.Tensor,
    targets: sp.csr_matrix,
    filters: NDArray[np.int64],
    kept: int,
    *,
    first_pass: str | None = None,
    queries_per_block: int = QUERIES_PER_BLOCK,
) -> NDArray[np.int32]:
    """Search each query's nearest labels, leaving out its positives and its filter pairs.

    The pairs to leave out are made for one block of queries while the one before is searched; of
    all queries they would take 16 bytes for each positive. On a GPU the search goes in two passes
    without a second look: of labels whose scores a bfloat16 product cannot distinguish, one may
    stand for another at the last places.

    Args:
        queries: (N, D) vectors.
        labels: (L, D) vectors, on the same device.
        targets: (N, L) the queries' positives.
        filters: (M, 2) pairs (query, label) that are no negatives either.
        kept: How many labels to keep for each query.
        first_pass: See ``ExactIndex``; None for "bfloat16" on a GPU and none on a CPU.
        queries_per_block: How many to search at once.

    Returns:
        (N, kept) label rows, nearest first; -1 where there is none.
    """
    found = np.full((len(queries), kept), -1, np.int32)
    if not kept:
        return found
    if first_pass is None and labels.is_cuda:
        first_pass = "bfloat16"
    index = ExactIndex.build(labels, first_pass=first_pass, recheck=False)
    filters = filters[np.argsort(filters[:, 0], kind="stable")]
    starts = range(0, len(queries), queries_per_block)
    with ThreadPoolExecutor(1) as helper:
        made = [helper.submit(_own_pairs, targets, filters, 0, queries_per_block)]
        for start in starts:
            stop = start + queries_per_block
            pairs = made.pop().result()
            made.append(helper.submit(_own_pairs, targets, filters, stop, queries_per_block))
            top = index.search(queries[start:stop], kept, exclude=pairs)
            found[start:stop] = top.rows
    return found


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
