"""Scores of chosen pairs of query and label as one linear map of the labels' sparse weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

TABLE_ENTRIES = 16 << 20
"""Entries of the table from (label, word) to the place of a weight, for some labels at a time."""


@dataclass(frozen=True)
class Overlaps:
    """(P, W) with entry (p, j) the value in pair p's query of the word that weight j has.

    ``times(weights.data)`` equals ``queries[rows].multiply(weights[labels]).sum(axis=1)``, and
    ``turned_times`` is its transpose, which is what a gradient needs. On the CPU both are sparse
    products of scipy; on another device a gather with a sum by pair, and a scatter.
    """

    values: torch.Tensor
    """(E,) of words, a pair's one after the other."""
    places: torch.Tensor
    """(E,) of weights."""
    starts: torch.Tensor
    """(P + 1,) where each pair begins."""
    n_weights: int
    _matrix: list[sp.csr_matrix] = field(default_factory=list)

    @property
    def on_host(self) -> bool:
        """Whether scipy multiplies."""
        return self.values.device.type == "cpu"

    def _host(self) -> sp.csr_matrix:
        if not self._matrix:
            shape = (len(self.starts) - 1, self.n_weights)
            parts = (self.values.numpy(), self.places.numpy(), self.starts.numpy())
            self._matrix.append(sp.csr_matrix(parts, shape=shape, copy=False))
        return self._matrix[0]

    def times(self, weights: torch.Tensor) -> torch.Tensor:
        """(P,) scores."""
        if self.on_host:
            return torch.from_numpy(self._host() @ weights.numpy())
        return gathered(self.values, self.places, self.starts, weights)

    def turned_times(self, slopes: torch.Tensor) -> torch.Tensor:
        """(W,) what the slopes of the scores are as slopes of the weights."""
        if self.on_host:
            return torch.from_numpy(self._host().T @ slopes.numpy())
        return scattered(self.values, self.places, self.starts, slopes, self.n_weights)

    def squares(self) -> torch.Tensor:
        """(W,) sum of the squares of each column: each weight's own curvature."""
        sums = torch.zeros(self.n_weights, dtype=self.values.dtype, device=self.values.device)
        return sums.index_add_(0, self.places, self.values * self.values)


def gathered(
    values: torch.Tensor, places: torch.Tensor, starts: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """``Overlaps.times`` on any device."""
    pairs = torch.arange(len(starts) - 1, device=values.device)
    owner = torch.repeat_interleave(pairs, starts.diff(), output_size=len(values))
    sums = torch.zeros(len(pairs), dtype=weights.dtype, device=values.device)
    return sums.index_add_(0, owner, values * weights[places])


def scattered(
    values: torch.Tensor,
    places: torch.Tensor,
    starts: torch.Tensor,
    slopes: torch.Tensor,
    n_weights: int,
) -> torch.Tensor:
    """``Overlaps.turned_times`` on any device."""
    each = torch.repeat_interleave(slopes, starts.diff(), output_size=len(values))
    sums = torch.zeros(n_weights, dtype=slopes.dtype, device=values.device)
    return sums.index_add_(0, places, values * each)


def overlaps(
    queries: sp.csr_matrix,
    weights: sp.csr_matrix,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    *,
    device: torch.device | str = "cpu",
) -> Overlaps:
    """The map for pairs in rising order of labels.

    Args:
        queries: (N, V).
        weights: (L, V); where it has entries is what counts.
        rows: (P,) of queries.
        labels: (P,) rising, so that pairs of one label find their weights side by side.
        device: Where it will be used.

    Returns:
        The map.
    """
    values, places, lengths = [], [], [np.zeros(0, np.int64)]
    for some, table, first in _tables(weights, labels):
        mine = queries[rows[some]]
        counts = np.diff(mine.indptr)
        offsets = (labels[some] - first) * np.int64(weights.shape[1])
        found = table[np.repeat(offsets, counts) + mine.indices]
        kept = found >= 0
        before = np.concatenate([[0], np.cumsum(kept)])
        values.append(mine.data[kept].astype(np.float32, copy=False))
        places.append(found[kept])
        lengths.append(np.diff(before[mine.indptr]))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    wide = np.int32 if starts[-1] < 2**31 else np.int64
    return Overlaps(
        torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *values])).to(device),
        torch.from_numpy(np.concatenate([np.zeros(0, np.int32), *places]).astype(wide)).to(device),
        torch.from_numpy(starts.astype(wide)).to(device),
        weights.nnz,
    )


def _tables(
    weights: sp.csr_matrix, labels: NDArray[np.int64]
) -> Iterator[tuple[slice, NDArray[np.int32], int]]:
    """Pairs of some labels at a time, where each (label, word) has its weight, the first label."""
    n_labels, n_words = weights.shape
    each = max(1, TABLE_ENTRIES // max(1, n_words))
    table = np.full(min(each, n_labels) * n_words, -1, np.int32)
    for first in range(0, n_labels, each):
        last = min(n_labels, first + each)
        start, stop = np.searchsorted(labels, [first, last])
        if start == stop:
            continue
        begin, end = int(weights.indptr[first]), int(weights.indptr[last])
        own = np.repeat(np.arange(last - first), np.diff(weights.indptr[first : last + 1]))
        keys = own * np.int64(n_words) + weights.indices[begin:end]
        table[keys] = np.arange(begin, end, dtype=np.int32)
        yield slice(int(start), int(stop)), table, first
        table[keys] = -1
