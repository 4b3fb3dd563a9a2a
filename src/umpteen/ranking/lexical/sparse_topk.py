"""Sparse products, their top-k and look-ups, in work proportional to the postings.

On the CPU a product is a CSR matrix. On another device the weights stay there as CSR and a product
is a dense block of scores; the three functions accept both.
"""

from __future__ import annotations

import threading
from typing import Any, overload

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.device_topk import DeviceMatrix, DeviceScores
from umpteen.ranking.lexical.matrices import CsrArrays, keep_largest, matrix_product, row_product

MANY_TEXTS = 20_000
"""Above this many texts the inverted index is pruned."""
MAX_POSTINGS = 1000
"""Texts of a term that a pruned index keeps: a term of more texts says little about any of them."""
SCRATCH_VALUES = 1 << 20
"""Values of the dense block that ``look_up`` scatters into and clears; each thread keeps one."""
PADDED_VALUES = 4 << 20
"""Values of the padded blocks of ``top_k_of_rows``."""
VALUES_AT_ONCE = 1 << 19
"""Stored values that ``top_k_of_rows`` filters at once."""
TINY = np.finfo(np.float32).tiny
"""The smallest score above 0 that counts."""
GROUPS = 4
"""Groups of values per result whose maxima bound the top-k from below."""


def prune_postings(weights: sp.csr_matrix, max_postings: int | None) -> sp.csr_matrix:
    """Keep the ``max_postings`` weights of largest magnitude of each term; None keeps all."""
    return weights if max_postings is None else keep_largest(weights, max_postings)


@overload
def product(queries: sp.csr_matrix, weights: DeviceMatrix) -> DeviceScores: ...
@overload
def product(queries: sp.csr_matrix, weights: sp.csr_matrix) -> sp.csr_matrix | CsrArrays: ...
def product(
    queries: sp.csr_matrix, weights: sp.csr_matrix | DeviceMatrix
) -> sp.csr_matrix | CsrArrays | DeviceScores:
    """Multiply queries (B, V) with weights (V, L).

    Args:
        queries: CSR on the host.
        weights: CSR on the host, or a ``DeviceMatrix``.

    Returns:
        (B, L): CSR with columns in any order (its arrays alone for one query), or ``DeviceScores``.
        The caller bounds B where weights are on a device: the block is dense there.
    """
    if isinstance(weights, DeviceMatrix):
        return weights.product(queries)
    if queries.shape[0] == 1:
        return row_product(queries, weights)
    return matrix_product(queries, weights)


@overload
def top_k_of_rows(scores: DeviceScores, k: int) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def top_k_of_rows(
    scores: sp.csr_matrix | CsrArrays, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
def top_k_of_rows(scores: sp.csr_matrix | CsrArrays | DeviceScores, k: int) -> Any:
    """Find the k best positive scores of each row; ties go to the smaller column.

    Args:
        scores: (B, L) from ``product``.
        k: How many.

    Returns:
        (B, k) columns, best first, -1 where fewer are above 0, and their scores, -inf there.
        Tensors on the device for ``DeviceScores``.
    """
    if isinstance(scores, DeviceScores):
        return scores.top_k(k)
    if scores.shape[0] == 1:
        return _top_k_of_one(scores.indices, scores.data, k)
    n = scores.shape[0]
    rows = np.full((n, k), -1, np.int64)
    best = np.full((n, k), -np.inf, np.float32)
    if not k:
        return rows, best
    scores = _candidates_of_top_k(scores, k)
    counts = np.diff(scores.indptr)
    order = np.argsort(counts, kind="stable")
    start = int(np.searchsorted(counts[order], 1))
    while start < n:
        # Rows of similar length share a block: padding at most doubles the work.
        width = max(2 * k, 2 * int(counts[order[start]]))
        stop = int(np.searchsorted(counts[order], width, side="right"))
        stop = min(stop, start + max(1, PADDED_VALUES // width))
        chosen = order[start:stop]
        rows[chosen], best[chosen] = _padded_top_k(scores, chosen, k)
        start = stop
    return rows, best


@overload
def look_up(scores: DeviceScores, rows: NDArray[np.int64] | torch.Tensor) -> torch.Tensor: ...
@overload
def look_up(scores: sp.csr_matrix, rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
def look_up(scores: sp.csr_matrix | CsrArrays | DeviceScores, rows: Any) -> Any:
    """Return (B, K) ``scores[b, rows[b, j]]``; 0 where nothing is stored or the row is -1.

    Args:
        scores: (B, L) from ``product``; columns in any order, no duplicates.
        rows: (B, K) columns to read, -1 for padding. Columns at or above L read as 0.

    Returns:
        Float32; a tensor on the device for ``DeviceScores``.
    """
    if isinstance(scores, DeviceScores):
        return scores.look_up(rows)
    n_columns = scores.shape[1]
    wanted = np.asarray(rows)
    if not n_columns or not scores.nnz:
        return np.zeros(wanted.shape, np.float32)
    there = (wanted >= 0) & (wanted < n_columns)
    if len(wanted) == 1:
        scratch = _scratch(n_columns)
        scratch[scores.indices] = scores.data
        found = np.where(there, scratch[np.where(there, wanted, 0)], np.float32(0))
        scratch[scores.indices] = 0.0
        _kept.zeros = scratch if len(scratch) <= SCRATCH_VALUES else None
        return found
    step = max(1, SCRATCH_VALUES // n_columns)
    found = np.empty(wanted.shape, np.float32)
    scratch = _scratch(step * n_columns)
    for start in range(0, len(wanted), step):
        stop = min(len(wanted), start + step)
        begin, end = scores.indptr[start], scores.indptr[stop]
        offsets = np.arange(stop - start) * n_columns
        at = np.repeat(offsets, np.diff(scores.indptr[start : stop + 1]))
        at += scores.indices[begin:end]
        scratch[at] = scores.data[begin:end]
        found[start:stop] = scratch[np.where(there[start:stop], wanted[start:stop], 0)
                                    + offsets[:, None]]  # fmt: skip
        scratch[at] = 0.0
    _kept.zeros = scratch if len(scratch) <= SCRATCH_VALUES else None
    found[~there] = 0.0
    return found


def _scratch(n: int) -> NDArray[np.float32]:
    """Return at least n zeros; the caller puts them back when they are zeros again."""
    zeros: NDArray[np.float32] | None = getattr(_kept, "zeros", None)
    _kept.zeros = None
    return (
        np.zeros(max(n, SCRATCH_VALUES), np.float32) if zeros is None or len(zeros) < n else zeros
    )


_kept = threading.local()


def inverted_index(text_matrix: sp.csr_matrix, max_postings: int | None = None) -> sp.csr_matrix:
    """Transpose (M, V) tf-idf rows to (V, M), keeping the largest values of each term."""
    return prune_postings(sp.csr_matrix(text_matrix.T), max_postings)


def inverted_texts(terms: sp.csr_matrix) -> sp.csr_matrix:
    """Return the inverted index (V, M) of (M, V) tf-idf rows of texts; pruned where M is large."""
    return inverted_index(terms, MAX_POSTINGS if terms.shape[0] > MANY_TEXTS else None)


def _top_k_of_one(
    columns: NDArray[np.integer], values: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the top k of a single row, with few calls."""
    rows = np.full((1, k), -1, np.int64)
    best = np.full((1, k), -np.inf, np.float32)
    bound = TINY
    width = GROUPS * k
    if len(values) > width > 0:
        # The k-th largest of group maxima bounds the k-th largest value from below.
        maxima = values[: len(values) // width * width].reshape(-1, width).max(axis=0)
        bound = max(bound, np.partition(maxima, width - k)[width - k])
    kept = np.flatnonzero(values >= bound)
    order = np.lexsort((columns[kept], -values[kept]))[:k]
    rows[0, : len(order)] = columns[kept[order]]
    best[0, : len(order)] = values[kept[order]]
    return rows, best


def _candidates_of_top_k(scores: sp.csr_matrix, k: int) -> sp.csr_matrix:
    """Drop values that cannot be among the k best positive ones of their row."""
    n, data = scores.shape[0], scores.data.astype(np.float32, copy=False)
    kept, lengths, start = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    while start < n:  # blocks of rows that fit into the cache
        reach = scores.indptr[start] + VALUES_AT_ONCE
        stop = max(start + 1, int(np.searchsorted(scores.indptr, reach, side="right")) - 1)
        indptr = scores.indptr[start : stop + 1]
        first, own = indptr[0], data[indptr[0] : indptr[-1]]
        bounds = np.repeat(_lower_bounds(own, indptr - first, k), np.diff(indptr))
        found = np.flatnonzero(own >= bounds)
        lengths.append(np.diff(np.searchsorted(found, indptr - first)))
        kept.append(found + first)
        start = stop
    places = np.concatenate(kept)
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return sp.csr_matrix((data[places], scores.indices[places], indptr), shape=scores.shape)


def _lower_bounds(
    data: NDArray[np.float32], indptr: NDArray[np.int32], k: int
) -> NDArray[np.float32]:
    """Bound the k-th largest positive value of each row from below.

    The k-th largest of the maxima of disjoint groups of values is such a bound.
    """
    counts = np.diff(indptr)
    bounds = np.full(len(counts), TINY, np.float32)
    long = np.flatnonzero(counts > 2 * GROUPS * k)
    if not len(long):
        return bounds
    sizes = counts[long] // (GROUPS * k)
    groups = -(-counts[long] // sizes)
    # One more mark for each row: its end, where its last group ends.
    marks, last = groups + 1, np.cumsum(groups + 1) - 1
    within = np.arange(int(marks.sum())) - np.repeat(last - groups, marks)
    firsts = np.repeat(indptr[long], marks) + within * np.repeat(sizes, marks)
    firsts[last] = indptr[long + 1]
    inside = firsts < len(data)
    maxima = np.full(len(firsts), -np.inf, np.float32)
    maxima[inside] = np.maximum.reduceat(data, firsts[inside])
    maxima[last] = -np.inf
    block = np.full((len(long), int(marks.max())), -np.inf, np.float32)
    block[np.repeat(np.arange(len(long)), marks), within] = maxima
    place = block.shape[1] - k
    bounds[long] = np.maximum(bounds[long], np.partition(block, place, axis=1)[:, place])
    return bounds


def _padded_top_k(
    scores: sp.csr_matrix, chosen: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the top k of some rows, laid out as a dense (rows, width) block of integer keys."""
    starts, counts = scores.indptr[chosen], np.diff(scores.indptr)[chosen]
    width = max(k, int(counts.max()))
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    source = np.repeat(starts, counts) + within
    values = scores.data[source].astype(np.float32, copy=False)
    keys = (values.view(np.int32).astype(np.int64) << 32) | (
        0xFFFFFFFF - scores.indices[source].astype(np.int64)
    )
    # Keys of positive scores are ordered by score, then by the smaller column; others are 0.
    block = np.zeros(len(chosen) * width, np.int64)
    block[np.repeat(np.arange(len(chosen)) * width, counts) + within] = np.where(
        values > 0, keys, 0
    )
    best = torch.topk(torch.from_numpy(block).view(len(chosen), width), k, dim=1).values.numpy()
    columns = np.where(best > 0, 0xFFFFFFFF - (best & 0xFFFFFFFF), -1)
    found = (best >> 32).astype(np.int32).view(np.float32)
    return columns, np.where(best > 0, found, np.float32(-np.inf))
