"""Sparsity patterns of label weights: initial weights, pruning to a budget, widening."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.ranking.lexical.matrices import keep_largest, row_numbers, unit_rows

BLOCK_PRODUCTS = 16 << 20
"""Products of a sparse matrix that are added up at once."""


def initial_weights(
    queries: sp.csr_matrix, targets: sp.csr_matrix, labels: sp.csr_matrix, max_weights: int
) -> sp.csr_matrix:
    """Return (L, V) unit rows: the sum of a label's training texts and its own text.

    Args:
        queries: (N, V) tf-idf rows of the training texts.
        targets: (N, L) positives.
        labels: (L, V) tf-idf rows of the label texts.
        max_weights: Weights of all labels together; see ``prune_to_budget``.
    """
    ones = sp.csr_matrix(
        (np.ones(targets.nnz, np.float32), targets.indices, targets.indptr), shape=targets.shape
    )
    return unit_rows(_pruned_sum(labels, sp.csr_matrix(ones.T), queries, max_weights))


def prune_to_budget(matrix: sp.csr_matrix, max_values: int) -> sp.csr_matrix:
    """Keep the largest values of each row under one limit per row, the largest that fits."""
    kept = keep_largest(matrix, _limit(np.diff(matrix.indptr), max_values))
    kept.sort_indices()
    return kept


def _limit(lengths: NDArray[np.integer], max_values: int) -> int:
    """Return the largest limit per row with which rows have so many values together."""
    longest = int(lengths.max(initial=0))
    if lengths.sum(dtype=np.int64) <= max_values:
        return longest
    # sum(min(length, limit)) increases with the limit: bisection.
    limit, high = 1, longest
    while limit < high:
        middle = (limit + high + 1) // 2
        fits = np.minimum(lengths, middle).sum(dtype=np.int64) <= max_values
        limit, high = (middle, high) if fits else (limit, middle - 1)
    return limit


def _pruned_sum(
    first: sp.csr_matrix, left: sp.csr_matrix, right: sp.csr_matrix, max_values: int
) -> sp.csr_matrix:
    """Return ``prune_to_budget(first + left @ right)``, some rows at a time.

    The limit per row of some rows is never below that of all: what it removes would be removed in
    the end, too. Memory is some times ``max_values`` and ``BLOCK_PRODUCTS``, however large the
    product is.
    """
    products = np.concatenate([[0], np.cumsum(np.diff(right.indptr)[left.indices])])
    reach = products[left.indptr] + first.indptr
    parts: list[sp.csr_matrix] = []
    lengths: list[NDArray[np.integer]] = []
    start, n, kept = 0, left.shape[0], 0
    while start < n:
        stop = int(np.searchsorted(reach, reach[start] + BLOCK_PRODUCTS, side="right")) - 1
        stop = max(start + 1, stop)
        some = sp.csr_matrix(left[start:stop] @ right + first[start:stop], dtype=np.float32)
        parts.append(some)
        lengths.append(np.diff(some.indptr))
        start, kept = stop, kept + some.nnz
        if kept > max_values + BLOCK_PRODUCTS:
            limit = _limit(np.concatenate(lengths), max_values)
            parts = [keep_largest(part, limit) for part in parts]
            kept = sum(part.nnz for part in parts)
    if not parts:
        return prune_to_budget(sp.csr_matrix(first, dtype=np.float32), max_values)
    limit = _limit(np.concatenate(lengths), max_values)
    whole = sp.vstack([keep_largest(part, limit) for part in parts], format="csr")
    whole.sort_indices()
    return whole


def widen(
    weights: sp.csr_matrix,
    queries: sp.csr_matrix,
    hard_negatives: NDArray[np.int64],
    max_weights: int,
) -> sp.csr_matrix:
    """Add entries of nearly 0 for the terms of texts of which a label is a hard negative.

    Args:
        weights: (L, V).
        queries: (N, V).
        hard_negatives: (N, K) labels, -1 for padding.
        max_weights: As in ``initial_weights``.
    """
    place, rank = np.nonzero(hard_negatives >= 0)
    ones = np.full(len(place), np.float32(1e-6))
    shape = (weights.shape[0], queries.shape[0])
    pairs = sp.csr_matrix((ones, (hard_negatives[place, rank], place)), shape=shape)
    return _pruned_sum(weights, pairs, queries, max_weights)


def values_at(matrix: sp.csr_matrix, pattern: sp.csr_matrix) -> NDArray[np.float32]:
    """Return (W,) the matrix's values where the pattern has entries; columns must be sorted."""
    width = np.int64(matrix.shape[1])
    own, wanted = (row_numbers(one) * width + one.indices for one in (matrix, pattern))
    values = np.zeros(pattern.nnz, np.float32)
    places, found = find_sorted(own, wanted)
    values[places[found]] = matrix.data[found]
    return values


def find_sorted(
    keys: NDArray[np.int64], among: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the positions of keys in a sorted array, and which of the keys are in it."""
    places = np.searchsorted(among, keys)
    found = places < len(among)
    found[found] = among[places[found]] == keys[found]
    return places, found
