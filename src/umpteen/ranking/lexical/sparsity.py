"""Sparsity patterns of label weights: initial weights, pruning to a budget, widening."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.ranking.lexical.matrices import (
    keep_values,
    largest_of_rows,
    row_numbers,
    unit_rows,
)

MIN_WEIGHTS = 24
"""Weights that a label has at least, where its texts have as many terms."""
OWN_TEXT_SHARE = 0.3
"""Weight that each training text after the first one adds to the label's own text."""
BLOCK_PRODUCTS = 16 << 20
"""Products of a sparse matrix that are added up at once."""


def initial_weights(
    queries: sp.csr_matrix, targets: sp.csr_matrix, labels: sp.csr_matrix, max_weights: int
) -> sp.csr_matrix:
    """Return (L, V) unit rows: the sum of a label's training texts and its weighted own text.

    The weight of the own text grows with the number n of training texts, ``1 + OWN_TEXT_SHARE *
    (n - 1)``. With a weight of 1, the own text would vanish among the texts of a frequent label,
    most of whose words belong to other labels.

    Where there are more than ``max_weights``, each label keeps its ``MIN_WEIGHTS`` largest, and the
    others are the largest sums of all: a term of many texts of a frequent label counts more than
    one of a single text of a rare label.

    Args:
        queries: (N, V) tf-idf rows of the training texts.
        targets: (N, L) positives.
        labels: (L, V) tf-idf rows of the label texts.
        max_weights: Weights of all labels together.
    """
    ones = sp.csr_matrix(
        (np.ones(targets.nnz, np.float32), targets.indices, targets.indptr), shape=targets.shape
    )
    by_label = sp.csr_matrix(ones.T)
    counts = np.diff(by_label.indptr)
    own_weights = (1 + OWN_TEXT_SHARE * np.maximum(counts - 1, 0)).astype(np.float32)
    values = labels.data * np.repeat(own_weights, np.diff(labels.indptr))
    own_texts = sp.csr_matrix((values, labels.indices, labels.indptr), shape=labels.shape)
    each = min(MIN_WEIGHTS, max_weights // max(1, labels.shape[0]))

    def always(sums: sp.csr_matrix, own: sp.csr_matrix) -> NDArray[np.bool_]:
        return largest_of_rows(sums, each)

    return unit_rows(_pruned_sum(own_texts, by_label, queries, max_weights, always))


def widen(
    weights: sp.csr_matrix,
    queries: sp.csr_matrix,
    hard_negatives: NDArray[np.int64],
    max_weights: int,
) -> sp.csr_matrix:
    """Add entries of nearly 0 for the terms of texts of which a label is a hard negative.

    Args:
        weights: (L, V); all are kept.
        queries: (N, V).
        hard_negatives: (N, K) labels, -1 for padding.
        max_weights: Entries of all labels together; of the new ones, the largest sums are kept.
    """
    place, rank = np.nonzero(hard_negatives >= 0)
    ones = np.full(len(place), np.float32(1e-6))
    shape = (weights.shape[0], queries.shape[0])
    pairs = sp.csr_matrix((ones, (hard_negatives[place, rank], place)), shape=shape)

    def always(sums: sp.csr_matrix, own: sp.csr_matrix) -> NDArray[np.bool_]:
        width = np.int64(sums.shape[1])
        given, wanted = (row_numbers(one) * width + one.indices for one in (own, sums))
        kept = np.zeros(sums.nnz, bool)
        places, found = find_sorted(given, wanted)
        kept[places[found]] = True
        return kept

    return _pruned_sum(weights, pairs, queries, max_weights, always)


def _pruned_sum(
    first: sp.csr_matrix,
    left: sp.csr_matrix,
    right: sp.csr_matrix,
    max_values: int,
    always: Callable[[sp.csr_matrix, sp.csr_matrix], NDArray[np.bool_]],
) -> sp.csr_matrix:
    """Return ``first + left @ right`` with at most ``max_values`` values, some rows at a time.

    Values that are not kept always are kept above one threshold. It rises with every block: what
    it removes would be removed in the end, too. Memory is some times ``max_values`` and
    ``BLOCK_PRODUCTS``, however large the product is.

    Args:
        first: (L, V) with sorted columns.
        left: (L, N).
        right: (N, V).
        max_values: Values to keep.
        always: From rows of the sum and of ``first`` to (nnz,) which values are kept anyway.
    """
    products = np.concatenate([[0], np.cumsum(np.diff(right.indptr)[left.indices])])
    reach = products[left.indptr] + first.indptr
    parts: list[sp.csr_matrix] = []
    fixed: list[NDArray[np.bool_]] = []
    start, n, stored = 0, left.shape[0], 0
    while start < n:
        stop = int(np.searchsorted(reach, reach[start] + BLOCK_PRODUCTS, side="right")) - 1
        stop = max(start + 1, stop)
        own = first[start:stop]
        sums = sp.csr_matrix(left[start:stop] @ right + own, dtype=np.float32)
        sums.sort_indices()
        parts.append(sums)
        fixed.append(always(sums, own))
        start, stored = stop, stored + sums.nnz
        if stored > max_values + BLOCK_PRODUCTS or (start == n and stored > max_values):
            parts, fixed = _above_threshold(parts, fixed, max_values)
            stored = sum(part.nnz for part in parts)
    return sp.csr_matrix(sp.vstack(parts, format="csr")) if parts else first


def _above_threshold(
    parts: list[sp.csr_matrix], fixed: list[NDArray[np.bool_]], max_values: int
) -> tuple[list[sp.csr_matrix], list[NDArray[np.bool_]]]:
    """Keep the fixed values and, as far as there is room, the largest of the others."""
    room = max(0, max_values - sum(int(one.sum()) for one in fixed))
    others = np.concatenate(
        [np.abs(part.data[~one]) for part, one in zip(parts, fixed, strict=True)]
    )
    if len(others) <= room:
        return parts, fixed
    place = len(others) - room - 1
    threshold = np.partition(others, place)[place]
    kept = [one | (np.abs(part.data) > threshold) for part, one in zip(parts, fixed, strict=True)]
    cut = [keep_values(part, one) for part, one in zip(parts, kept, strict=True)]
    return cut, [one[some] for one, some in zip(fixed, kept, strict=True)]


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
