"""Compare predictions with the truth, and take filtered pairs out first. No metric lives here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import DataError
from umpteen.metrics.base import Hits
from umpteen.types import TopK

BLOCK = 1 << 20
"""Predictions compared at once: small enough for the caches, so faster than all together."""


def find_hits(
    topk: TopK,
    truth: sp.csr_matrix,
    *,
    inverse_propensities: NDArray[np.float64] | None = None,
    label_counts: NDArray[np.int64] | None = None,
) -> Hits:
    """Mark which predictions are positives.

    Equals ``truth[i, rows[i, j]] != 0`` for every place; costs one binary search among the query's
    positives per prediction. All row arithmetic is int64, exact for any number of labels.

    Args:
        topk: The predictions, best first (see ``put_in_order``).
        truth: (N, L) CSR; a stored non-zero is a positive, its value does not matter.
        inverse_propensities: (L,), needed by PSP and PSnDCG alone.
        label_counts: (L,) counts on the training data, for metrics of your own that want them.

    Returns:
        What every metric reads.

    Raises:
        DataError: If shapes do not fit, a row is out of range, or a positive is predicted twice.
    """
    n, n_labels = truth.shape
    if len(topk) != n:
        raise DataError(f"predictions for {len(topk)} queries, but the truth has {n}")
    for name, array in (("propensities", inverse_propensities), ("counts", label_counts)):
        if array is not None and array.shape != (n_labels,):
            raise DataError(f"label {name} of shape {array.shape}, but there are {n_labels} labels")
    rows = np.asarray(topk.rows)
    if rows.dtype.kind not in "iu":
        # Rows kept as float32 are wrong beyond 16.7 million labels and look right before.
        raise DataError(f"predicted rows must be integers, got {rows.dtype}")
    rows = rows.astype(np.int64, copy=False)
    if rows.size and rows.max() >= n_labels:
        raise DataError(f"label row {rows.max()} is predicted, but there are {n_labels} labels")
    offsets, positives = _pairs_of(truth)
    hits = _find_pairs(rows, offsets, positives, n_labels)
    _refuse_doubles(rows, hits, n_labels)
    filled = np.asarray(topk.scores) > -np.inf
    return Hits(
        rows, hits, offsets, positives, n_labels, inverse_propensities, label_counts, filled
    )


def put_in_order(topk: TopK) -> TopK:
    """Return the same predictions by falling score, equal scores by smaller row.

    Vacant places last.

    A place whose score is -inf holds no prediction, whatever its row. Rows that are in order
    already, as those of our own indexes are, cost one comparison.

    Raises:
        DataError: If a score is not a number.
    """
    rows, scores = topk.rows, topk.scores
    if np.isnan(scores).any():
        raise DataError("a score is not a number (NaN); predictions must have comparable scores")
    vacant = scores == -np.inf
    if (rows[vacant] != -1).any():
        rows = np.where(vacant, -1, rows)
    left, right = scores[:, :-1], scores[:, 1:]
    wrong = (left < right) | ((left == right) & (rows[:, :-1] > rows[:, 1:]))
    # Vacant places are all (-1, -inf), so they never compare as wrong among themselves.
    affected = np.flatnonzero(wrong.any(axis=1))
    if not len(affected):
        return replace(topk, rows=rows)
    order = np.lexsort((rows[affected], -scores[affected]), axis=1)
    rows, scores = rows.copy(), scores.copy()
    rows[affected] = np.take_along_axis(rows[affected], order, axis=1)
    scores[affected] = np.take_along_axis(scores[affected], order, axis=1)
    return TopK(rows, scores, topk.labels)


def drop_filtered(topk: TopK, filters: NDArray[np.int64], n_labels: int) -> TopK:
    """Return the predictions without the filtered (query, label row) pairs, the rest moved up.

    A filtered place gets the score -inf, never 0: cosines are often negative and 0 would win. The
    width stays, so search more than k when there are filters.
    """
    if not len(filters) or not topk.rows.size:
        return topk
    filters = filters[np.lexsort((filters[:, 1], filters[:, 0]))]
    queries, lengths = np.unique(filters[:, 0], return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = topk.rows[queries].astype(np.int64)
    found = _find_pairs(rows, offsets, filters[:, 1], n_labels)
    order = np.argsort(found, axis=1, kind="stable")  # the filtered places go last
    found = np.take_along_axis(found, order, axis=1)
    scores = np.take_along_axis(topk.scores[queries], order, axis=1)
    all_rows, all_scores = topk.rows.copy(), topk.scores.copy()
    all_rows[queries] = np.where(found, -1, np.take_along_axis(rows, order, axis=1))
    all_scores[queries] = np.where(found, np.float32(-np.inf), scores)
    return TopK(all_rows, all_scores, topk.labels)


def _pairs_of(truth: sp.csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    matrix = sp.csr_matrix(truth)
    if (matrix.data == 0).any() or not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)


def _find_pairs(
    rows: NDArray[np.int64], offsets: NDArray[np.int64], columns: NDArray[np.int64], n_labels: int
) -> NDArray[np.bool_]:
    """Return (N, K) whether (i, rows[i, j]) is among the sorted pairs.

    Block of queries by block.
    """
    n, width = rows.shape
    found = np.zeros((n, width), bool)
    step = max(1, BLOCK // max(1, width))
    for start in range(0, n, step):
        stop = min(n, start + step)
        first, last = offsets[start], offsets[stop]
        if first == last:
            continue
        queries = np.arange(stop - start, dtype=np.int64)
        pair_queries = np.repeat(queries, np.diff(offsets[start : stop + 1]))
        keys = pair_queries * n_labels + columns[first:last]  # ascending, as pairs are sorted
        wanted = queries[:, None] * n_labels + rows[start:stop]  # (block, K)
        places = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
        # A vacant place (-1) looks like the last label of the query before; the sign differs.
        found[start:stop] = (keys[places] == wanted) & (rows[start:stop] >= 0)
    return found


def _refuse_doubles(rows: NDArray[np.int64], hits: NDArray[np.bool_], n_labels: int) -> None:
    # Only a repeated positive can lift a number; a repeated wrong label wastes its own place.
    queries = np.nonzero(hits)[0]
    keys = np.sort(queries * n_labels + rows[hits])
    double = np.flatnonzero(keys[1:] == keys[:-1])
    if len(double):
        query, row = divmod(int(keys[double[0]]), n_labels)
        raise DataError(f"label row {row} is predicted twice for query {query}; once is allowed")
