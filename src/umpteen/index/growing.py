"""An index that grows: immutable versions that share their vectors. One writer, many readers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.extras import installed
from umpteen.index.base import LabelIndex
from umpteen.index.exact import ExactIndex
from umpteen.index.pair_products import pair_products
from umpteen.types import TopK

TAIL_ROWS = 1024
"""Up to this many of the newest vectors form the last block, which every addition replaces."""
LEVEL_RATIO = 8
"""A block is merged into the one before it while that is smaller than this many times its size."""
APPROXIMATE_ROWS = 8192
"""From this size on a block is searched approximately on a CPU, where faiss is installed."""

PROBES = 8
"""Lists of a block that a search looks into."""

BuildBlock = Callable[[torch.Tensor], LabelIndex]


@dataclass(frozen=True)
class Block:
    """Consecutive vectors with an index of their own."""

    start: int
    index: LabelIndex

    @property
    def stop(self) -> int:
        """The first row behind the block."""
        return self.start + self.index.n_labels


class _Buffer:
    """Rows in one tensor with spare capacity; rows once written never change."""

    def __init__(self, width: int, device: torch.device | str) -> None:
        self.values = torch.empty(0, width, device=device)
        self.used = 0
        self.lock = threading.Lock()

    def append(self, used: int, rows: torch.Tensor) -> _Buffer:
        """Add rows behind the first ``used``; another buffer where those are not the last ones."""
        with self.lock:
            if self.used != used:
                copy = _Buffer(self.values.shape[1], self.values.device)
                copy.values, copy.used = self.values[:used].clone(), used
                return copy.append(used, rows)
            total = used + len(rows)
            if not used and rows.device == self.values.device and rows.is_contiguous():
                self.values, self.used = rows, total  # shared: never written to
                return self
            if total > len(self.values):
                grown = self.values.new_empty(max(total, 2 * len(self.values)), rows.shape[1])
                grown[:used] = self.values[:used]
                self.values = grown
            self.values[used:total] = rows
            self.used = total
            return self


@dataclass(frozen=True)
class GrowingIndex:
    """Vectors added one after the other, searchable at every size.

    ``extended`` returns a new version and leaves this one as it is. Vectors are kept in blocks
    whose sizes rise geometrically, as in a log-structured merge tree: adding n vectors one by one
    copies each of them O(log n) times, and a search visits O(log n) blocks.

    Args:
        width: D.
        device: Where vectors are searched.
    """

    width: int
    device: torch.device | str = "cpu"
    blocks: tuple[Block, ...] = ()
    build_block: BuildBlock | None = None
    _buffer: _Buffer | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.blocks[-1].stop if self.blocks else 0

    @property
    def vectors(self) -> torch.Tensor:
        """(N, D), shared with other versions; do not write to it."""
        if self._buffer is None:
            return torch.empty(0, self.width, device=self.device)
        return self._buffer.values[: len(self)]

    def extended(
        self, vectors: torch.Tensor, *, prebuilt: LabelIndex | None = None
    ) -> GrowingIndex:
        """Return a version with more vectors behind the last row.

        Args:
            vectors: (M, D).
            prebuilt: An index of the first of these vectors; only for an empty version.

        Returns:
            This version where M is 0.
        """
        if not len(vectors):
            return self
        if prebuilt is not None and not len(self) and prebuilt.n_labels <= len(vectors):
            n = prebuilt.n_labels
            buffer = _Buffer(self.width, self.device).append(
                0, vectors[:n].to(self.device, torch.float32)
            )
            first = replace(self, blocks=(Block(0, prebuilt),), _buffer=buffer)
            return first.extended(vectors[n:])
        before, total = len(self), len(self) + len(vectors)
        buffer = self._buffer or _Buffer(self.width, self.device)
        buffer = buffer.append(before, vectors.to(self.device, torch.float32))
        values, blocks = buffer.values, list(self.blocks)
        start = before
        if blocks and blocks[-1].stop - blocks[-1].start < TAIL_ROWS:
            start = blocks.pop().start
        while (
            total - start >= TAIL_ROWS
            and blocks
            and blocks[-1].stop - blocks[-1].start < LEVEL_RATIO * (total - start)
        ):
            start = blocks.pop().start
        build = self.build_block or index_of_block
        blocks.append(Block(start, build(values[start:total])))
        return GrowingIndex(self.width, self.device, tuple(blocks), self.build_block, buffer)

    def search(
        self,
        queries: torch.Tensor,
        k: int,
        *,
        allowed: NDArray[np.bool_] | None = None,
        exact_scores: bool = True,
    ) -> TopK:
        """Return the k best rows of each query; -1 and -inf where there are fewer.

        Args:
            queries: (B, D).
            k: How many.
            allowed: (N,) False for rows that must not be returned.
            exact_scores: Compute scores again from the vectors; those of large blocks come from
                half precision otherwise, right to about 1e-3.

        Returns:
            (B, k).
        """
        tops = []
        for block in self.blocks:
            own = None if allowed is None else allowed[block.start : block.stop]
            top = block.index.search(queries, k, allowed=own)
            if exact_scores and not isinstance(block.index, ExactIndex):
                top = self._rescored(queries, top, block)
            tops.append(TopK(np.where(top.rows < 0, -1, top.rows + block.start), top.scores))
        return merged(tops, len(queries), k)

    def _rescored(self, queries: torch.Tensor, top: TopK, block: Block) -> TopK:
        """Put exact scores in place of those that an index of half precision found."""
        rows = torch.from_numpy(top.rows)
        vectors = self.vectors[block.start : block.stop]
        scores = pair_products(queries.to(vectors), vectors, rows).numpy()
        scores[top.rows < 0] = -np.inf
        order = np.lexsort((top.rows, -scores), axis=1)
        return TopK(np.take_along_axis(top.rows, order, 1), np.take_along_axis(scores, order, 1))


def merged(tops: list[TopK], n_queries: int, k: int) -> TopK:
    """Merge results over disjoint rows; ties keep the order of the list.

    Args:
        tops: Scores fall along each row; rows of a later result are larger.
        n_queries: B.
        k: How many to keep.

    Returns:
        (B, k), padded with -1 and -inf.
    """
    if len(tops) == 1 and tops[0].rows.shape[1] == k:
        return tops[0]
    if sum(top.rows.shape[1] for top in tops) < k:
        nothing = np.full((n_queries, k), -1, np.int64), np.full((n_queries, k), -np.inf, "f4")
        tops = [*tops, TopK(*nothing)]
    rows = np.concatenate([top.rows for top in tops], axis=1)
    scores = np.concatenate([top.scores for top in tops], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return TopK(np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))


def index_of_block(vectors: torch.Tensor, *, probes: int = PROBES) -> LabelIndex:
    """Build the index of one block: exact, or inverted lists for many vectors on a CPU.

    Lists hold half precision, which is read in half the time.
    """
    if len(vectors) < APPROXIMATE_ROWS or vectors.is_cuda or not installed("faiss"):
        return ExactIndex(vectors)
    from umpteen.index.faiss_index import FaissIndex

    n_lists = 2 ** int(np.log2(2 * np.sqrt(len(vectors))))
    return FaissIndex.build(
        vectors,
        factory=f"IVF{n_lists},SQfp16",
        nprobe=probes,
        training_sample=40 * n_lists,  # as many as faiss asks for
        iterations=4,
    )
