"""Search over label vectors whose rows several ranks hold: each searches its own, all merge.

What travels is (B, k) rows and scores of each rank, where a search of the whole table would need
the vectors of all labels on every rank.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.compute.distributed.sharding import Shards
from umpteen.index.base import LabelIndex
from umpteen.index.growing import GrowingIndex, merged
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.types import TopK


class ShardedSearch:
    """Search all labels of a job; every rank must call it with the same queries.

    Args:
        index: Of this rank's labels; None for a rank that holds none.
        shards: Which labels each rank holds.
    """

    def __init__(self, index: LabelIndex | None, shards: Shards) -> None:
        self.index = index
        self.shards = shards

    def search(
        self,
        queries: torch.Tensor,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> TopK:
        """Return the k best labels of each query, on every rank.

        Args:
            queries: (B, D).
            k: How many labels to return.
            exclude: (M, 2) pairs (query position, label row of all labels) to leave out.
            allowed: (L,) False for labels that no query may get.

        Returns:
            (B, k) rows of all labels and scores; equal scores in the order of rows, -1 and -inf
            where no label is left.
        """
        own = self._own(queries, k, exclude, allowed)
        stack = self.shards.ranks.stack
        rows = stack(torch.from_numpy(own.rows)).numpy()  # (world, B, k)
        scores = stack(torch.from_numpy(own.scores)).numpy()
        tops = [TopK(*each) for each in zip(rows, scores, strict=True)]
        return merged(tops, len(queries), k)

    def _own(
        self,
        queries: torch.Tensor,
        k: int,
        exclude: NDArray[np.int64] | None,
        allowed: NDArray[np.bool_] | None,
    ) -> TopK:
        first, last = self.shards.own.start, self.shards.own.stop
        if self.index is None:
            shape = (len(queries), k)
            return TopK(np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32))
        if exclude is not None:
            here = (exclude[:, 1] >= first) & (exclude[:, 1] < last)
            exclude = exclude[here] - np.array([0, first])
        mask = None if allowed is None else allowed[first:last]
        top = self.index.search(queries, k, exclude=exclude, allowed=mask)
        return TopK(np.where(top.rows >= 0, top.rows + first, -1), top.scores)


class ShardedLabelVectors(LabelVectors):
    """Label vectors to search by heads, of which this rank holds some rows.

    Args:
        own: (rows of this rank, heads * dim).
        columns: Head to the columns it uses.
        device: Where to search.
        shards: Which labels each rank holds.
    """

    def __init__(
        self, own: torch.Tensor, columns: dict[str, slice], device: torch.device, shards: Shards
    ) -> None:
        elsewhere = torch.empty(shards.n_labels, own.shape[1], device="meta")  # a shape alone
        super().__init__(elsewhere, columns, device, low_memory=True)
        self._own, self._shards = LabelVectors(own, columns, device, low_memory=True), shards

    def search(
        self,
        head: str,
        queries: torch.Tensor,
        k: int,
        added: GrowingIndex,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
        candidates: bool = False,
    ) -> TopK:
        """Return the k best labels of all ranks by one head; none are added while it trains."""
        own = self._own.index(head) if len(self._own) else None
        asked = queries[:, self.columns[head]]
        return ShardedSearch(own, self._shards).search(asked, k, exclude=exclude, allowed=allowed)
