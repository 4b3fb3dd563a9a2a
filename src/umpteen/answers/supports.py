"""Sparse weights of labels and where they have entries: made, cut, widened. No learning."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.answers.words import heaviest, unit_rows


def first_weights(
    queries: sp.csr_matrix, targets: sp.csr_matrix, labels: sp.csr_matrix, most: int
) -> sp.csr_matrix:
    """(L, V) rows of length one: the sum of a label's queries and its own text, cut to the largest.

    The same number of weights is allowed to every label, the largest for which all fit.
    """
    ones = targets.copy()
    ones.data = np.ones(len(ones.data), np.float32)
    sums = sp.csr_matrix(ones.T @ queries + labels, dtype=np.float32)
    return unit_rows(cut(sums, most))


def cut(matrix: sp.csr_matrix, most: int) -> sp.csr_matrix:
    """The largest values of each row, as many a row as fit when all rows may have as many."""
    lengths = np.diff(matrix.indptr)
    low = int(lengths.max(initial=0))
    if matrix.nnz > most:
        # sum(min(length, cap)) rises with cap: the largest cap that fits.
        low, high = 1, int(lengths.max())
        while low < high:
            middle = (low + high + 1) // 2
            fits = np.minimum(lengths, middle).sum() <= most
            low, high = (middle, high) if fits else (low, middle - 1)
    kept = heaviest(matrix, low)
    kept.sort_indices()
    return kept


def widened(
    weights: sp.csr_matrix, queries: sp.csr_matrix, near: NDArray[np.int64], most: int
) -> sp.csr_matrix:
    """The weights, with entries of (nearly) 0 for the words of queries that a label is near to."""
    n = queries.shape[0]
    place, rank = np.nonzero(near >= 0)
    ones = np.full(len(place), np.float32(1e-6))
    pairs = sp.csr_matrix((ones, (near[place, rank], place)), shape=(weights.shape[0], n))
    wide = sp.csr_matrix(weights + pairs @ queries, dtype=np.float32)
    if wide.nnz <= most:
        wide.sort_indices()
        return wide
    size = wide.copy()
    size.data = np.abs(size.data)
    kept = cut(size, most)
    return sp.csr_matrix((on_support(wide, kept), kept.indices, kept.indptr), shape=kept.shape)


def on_support(matrix: sp.csr_matrix, support: sp.csr_matrix) -> NDArray[np.float32]:
    """(W,) the matrix's values where the support has entries; columns of both must be sorted."""
    width = np.int64(matrix.shape[1])
    keys = [
        np.repeat(np.arange(one.shape[0]), np.diff(one.indptr)) * width + one.indices
        for one in (matrix, support)
    ]
    values = np.zeros(support.nnz, np.float32)
    places, found = places_of(keys[0], keys[1])
    values[places[found]] = matrix.data[found]
    return values


def places_of(
    keys: NDArray[np.int64], among: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where keys are in a rising array, and which of them are."""
    places = np.searchsorted(among, keys)
    found = places < len(among)
    found[found] = among[places[found]] == keys[found]
    return places, found
