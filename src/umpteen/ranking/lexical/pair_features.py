"""Scores of (text, label) pairs as one linear map of the labels' sparse weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.threads import map_in_threads

TABLE_ENTRIES = 16 << 20
"""Entries of the table from (label, term) to the position of a weight, some labels at a time."""
BLOCK_PAIRS = 1 << 18
"""Pairs of a block at least, which a thread multiplies on the host."""
MAX_BLOCKS = 256


@dataclass(frozen=True)
class LabelledPairs:
    """P pairs of text and label, sorted by label, those of a label by text."""

    rows: NDArray[np.int64]
    """(P,) texts."""
    labels: NDArray[np.int64]
    """(P,) non-decreasing."""
    positive: NDArray[np.bool_]


class PairBlock(NamedTuple):
    """Some labels, their pairs and their weights."""

    labels: slice
    pairs: slice
    weights: slice


@dataclass(frozen=True)
class PairFeatures:
    """A sparse matrix (P, W): entry (p, j) is the value in pair p's text of the term of weight j.

    ``times(weights.data)`` equals ``queries[rows].multiply(weights[labels]).sum(axis=1)``;
    ``transposed_times`` is the transpose, which gradients need. On the CPU both are scipy products,
    on another device a gather with a sum per pair and a scatter.
    """

    values: torch.Tensor
    """(E,) values of terms, grouped by pair."""
    positions: torch.Tensor
    """(E,) positions of weights, counted from the first weight of the pair's block."""
    starts: torch.Tensor
    """(P + 1,) where each pair begins."""
    n_weights: int
    blocks: tuple[PairBlock, ...]
    """In order; one on a device. A label's pairs and weights are in one block."""
    _matrices: list[sp.csr_matrix] = field(default_factory=list)

    @property
    def on_host(self) -> bool:
        """Whether scipy multiplies."""
        return self.values.device.type == "cpu"

    def host_blocks(self) -> list[tuple[PairBlock, sp.csr_matrix]]:
        """Return the blocks with their parts of the matrix; positions count from their weights."""
        if not self._matrices:
            self._matrices.extend(map(self._matrix, self.blocks))
        return list(zip(self.blocks, self._matrices, strict=True))

    def _matrix(self, block: PairBlock) -> sp.csr_matrix:
        starts = self.starts[block.pairs.start : block.pairs.stop + 1].numpy()
        own = slice(int(starts[0]), int(starts[-1]))
        parts = (self.values[own].numpy(), self.positions[own].numpy(), starts - starts[0])
        shape = (len(starts) - 1, block.weights.stop - block.weights.start)
        return sp.csr_matrix(parts, shape=shape, copy=False)

    def times(self, weights: torch.Tensor) -> torch.Tensor:
        """Return (P,) scores."""
        if not self.on_host:
            return gather_scores(self.values, self.positions, self.starts, weights)
        given = weights.numpy()
        scores = np.zeros(len(self.starts) - 1, given.dtype)

        def multiply(one: tuple[PairBlock, sp.csr_matrix]) -> None:
            block, matrix = one
            scores[block.pairs] = matrix @ given[block.weights]

        deque(map_in_threads(multiply, self.host_blocks()), maxlen=0)
        return torch.from_numpy(scores)

    def transposed_times(self, slopes: torch.Tensor) -> torch.Tensor:
        """Return (W,) the gradient of the weights from the slopes (P,) of the scores."""
        if not self.on_host:
            parts = (self.values, self.positions, self.starts)
            return scatter_slopes(*parts, slopes, self.n_weights)
        given = slopes.numpy()
        sums = np.zeros(self.n_weights, given.dtype)

        def multiply(one: tuple[PairBlock, sp.csr_matrix]) -> None:
            block, matrix = one
            sums[block.weights] = matrix.T @ given[block.pairs]

        deque(map_in_threads(multiply, self.host_blocks()), maxlen=0)
        return torch.from_numpy(sums)

    def squares(self) -> torch.Tensor:
        """Return (W,) the sum of squares of each column: the curvature of each weight."""
        sums = torch.zeros(self.n_weights, dtype=self.values.dtype, device=self.values.device)
        for block in self.blocks:
            own = slice(int(self.starts[block.pairs.start]), int(self.starts[block.pairs.stop]))
            values = self.values[own]
            sums[block.weights].index_add_(0, self.positions[own], values * values)
        return sums


def gather_scores(
    values: torch.Tensor, positions: torch.Tensor, starts: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Compute ``PairFeatures.times`` on any device."""
    pairs = torch.arange(len(starts) - 1, device=values.device)
    owner = torch.repeat_interleave(pairs, starts.diff(), output_size=len(values))
    sums = torch.zeros(len(pairs), dtype=weights.dtype, device=values.device)
    return sums.index_add_(0, owner, values * weights[positions])


def scatter_slopes(
    values: torch.Tensor,
    positions: torch.Tensor,
    starts: torch.Tensor,
    slopes: torch.Tensor,
    n_weights: int,
) -> torch.Tensor:
    """Compute ``PairFeatures.transposed_times`` on any device."""
    each = torch.repeat_interleave(slopes, starts.diff(), output_size=len(values))
    sums = torch.zeros(n_weights, dtype=slopes.dtype, device=values.device)
    return sums.index_add_(0, positions, values * each)


def pair_features(
    queries: sp.csr_matrix,
    weights: sp.csr_matrix,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    *,
    device: torch.device | str = "cpu",
) -> PairFeatures:
    """Build the map for pairs sorted by label.

    Args:
        queries: (N, V).
        weights: (L, V); only its sparsity pattern is used.
        rows: (P,) texts.
        labels: (P,) non-decreasing.
        device: Where it will be used.
    """
    values, positions, lengths = [], [], [np.zeros(0, np.int64)]
    for some, table, first in _tables(weights, labels):
        own = queries[rows[some]]
        counts = np.diff(own.indptr)
        offsets = (labels[some] - first) * np.int64(weights.shape[1])
        found = table[np.repeat(offsets, counts) + own.indices]
        kept = found >= 0
        before = np.concatenate([[0], np.cumsum(kept)])
        values.append(own.data[kept].astype(np.float32, copy=False))
        positions.append(found[kept])
        lengths.append(np.diff(before[own.indptr]))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    index = np.int32 if starts[-1] < 2**31 else np.int64
    entries = np.concatenate([np.zeros(0, np.float32), *values])
    values.clear()  # half of the memory
    flat: NDArray[np.int64] = np.concatenate([np.zeros(0, np.int32), *positions])
    flat = flat.astype(index, copy=False)
    positions.clear()
    blocks = _blocks(labels, weights, 1 if torch.device(device).type != "cpu" else MAX_BLOCKS)
    for block in blocks:
        flat[starts[block.pairs.start] : starts[block.pairs.stop]] -= block.weights.start
    return PairFeatures(
        torch.from_numpy(entries).to(device),
        torch.from_numpy(flat).to(device),
        torch.from_numpy(starts.astype(index)).to(device),
        weights.nnz,
        blocks,
    )


def _blocks(
    labels: NDArray[np.int64], weights: sp.csr_matrix, max_blocks: int
) -> tuple[PairBlock, ...]:
    """Cut pairs, sorted by label, into blocks of about even size between two labels."""
    n, n_labels = len(labels), weights.shape[0]
    n_blocks = max(1, min(max_blocks, n // BLOCK_PAIRS))
    cuts = labels[np.arange(1, n_blocks) * n // n_blocks]
    bounds = np.unique(np.concatenate([[0], cuts, [n_labels]]))
    pairs = np.searchsorted(labels, bounds).tolist()
    places = weights.indptr[bounds].tolist()
    cut = [[slice(*both) for both in pairwise(each)] for each in (bounds.tolist(), pairs, places)]
    return tuple(map(PairBlock, *cut))


def _tables(
    weights: sp.csr_matrix, labels: NDArray[np.int64]
) -> Iterator[tuple[slice, NDArray[np.int32], int]]:
    """Yield some pairs, the table from (label, term) to weight positions, and the first label."""
    n_labels, n_terms = weights.shape
    each = max(1, TABLE_ENTRIES // max(1, n_terms))
    table = np.full(min(each, n_labels) * n_terms, -1, np.int32)
    for first in range(0, n_labels, each):
        last = min(n_labels, first + each)
        start, stop = np.searchsorted(labels, [first, last])
        if start == stop:
            continue
        begin, end = int(weights.indptr[first]), int(weights.indptr[last])
        own = np.repeat(np.arange(last - first), np.diff(weights.indptr[first : last + 1]))
        keys = own * np.int64(n_terms) + weights.indices[begin:end]
        table[keys] = np.arange(begin, end, dtype=np.int32)
        yield slice(int(start), int(stop)), table, first
        table[keys] = -1
