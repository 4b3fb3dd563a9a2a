"""Search vectors of the trained labels: one index a head, and scores of chosen pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.errors import ConfigError
from umpteen.index.base import LabelIndex, VectorSearch, check_exclude
from umpteen.index.bfloat16_search import Bfloat16Index, rounding_pays
from umpteen.index.exact import ExactIndex
from umpteen.index.growing import GrowingIndex, merged
from umpteen.index.pair_products import pair_products
from umpteen.types import TopK

FIRST_PASS_LABELS = 50_000
"""From this many labels on a GPU searches in bfloat16 first; the results stay exact."""


class LabelVectors:
    """Vectors of the trained labels, as a model folder holds them.

    Args:
        vectors: (L, heads * dim), NumPy (memory-mapped, perhaps) or torch.
        columns: Head to the columns it uses, ``combined`` included where there are two heads.
        device: Where to search.
        low_memory: Keep one head's index at a time, and let vectors on another device visit this
            one block by block.
    """

    def __init__(
        self,
        vectors: Any,
        columns: dict[str, slice],
        device: torch.device,
        *,
        low_memory: bool = False,
    ) -> None:
        self.columns = columns
        self.device = device
        self._vectors = vectors
        self._low_memory = low_memory
        self._indexes: dict[str, LabelIndex] = {}
        self._rounded: dict[str, Bfloat16Index] = {}
        self._tensor: torch.Tensor | None = None

    def __len__(self) -> int:
        return int(self._vectors.shape[0])

    @property
    def width(self) -> int:
        """Heads * dim."""
        return int(self._vectors.shape[1])

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that can be searched, the best one last."""
        return tuple(self.columns)

    def require(self, head: str | None) -> str:
        """Return the head, the best one for None.

        Raises:
            ConfigError: If the model has no such head.
        """
        if head is None:
            return self.heads[-1]
        if head not in self.columns:
            raise ConfigError(f"the model has no head {head!r}; it has: {', '.join(self.heads)}")
        return head

    def tensor(self) -> torch.Tensor:
        """(L, heads * dim) where it is searched; shared with its file on a CPU."""
        if self._tensor is None:
            own = self._vectors
            own = own if isinstance(own, torch.Tensor) else torch.from_numpy(np.asarray(own))
            self._tensor = own if self._low_memory else own.to(self.device)
        return self._tensor

    def numpy(self, head: str | None = None) -> NDArray[np.float32]:
        """(L, D) the vectors of a head."""
        own = self._vectors[:, self.columns[self.require(head)]]
        return own.cpu().numpy() if isinstance(own, torch.Tensor) else np.asarray(own)

    def use_index(self, head: str, index: LabelIndex) -> None:
        """Search a head with another index than an exact one."""
        self._indexes[head] = index

    def index(self, head: str | None = None) -> LabelIndex:
        """Return the index of a head; exact unless another was set."""
        name = self.require(head)
        if name not in self._indexes:
            if self._low_memory:
                self._indexes.clear()
            vectors = self.tensor()[:, self.columns[name]]
            if vectors.device != self.device:
                self._indexes[name] = ExactIndex(vectors, device=self.device)
            elif self.device.type == "cpu" and len(vectors) >= FIRST_PASS_LABELS:
                # As they lie in the file: not read, checked or copied before the first search.
                self._indexes[name] = ExactIndex(vectors)
            else:
                first_pass = "bfloat16" if len(vectors) >= FIRST_PASS_LABELS else None
                self._indexes[name] = ExactIndex.build(vectors, first_pass=first_pass)
        return self._indexes[name]

    def _candidate_index(self, head: str) -> VectorSearch:
        """Return an index for candidates: faster than ``index``, and its scores do not count."""
        index = self.index(head)
        if not isinstance(index, ExactIndex):
            rough: VectorSearch = getattr(index, "rough", index)
            return rough
        if self.device.type != "cpu" or self._low_memory or not rounding_pays():
            return index
        if head not in self._rounded:
            vectors = self.tensor()[:, self.columns[head]]
            self._rounded[head] = Bfloat16Index(vectors, rescore=False)
        return self._rounded[head]

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
        """Return the k best labels by one head, trained and added.

        Args:
            head: The head.
            queries: (B, heads * dim).
            k: How many.
            added: Vectors of the labels behind the trained ones.
            exclude: (M, 2) pairs (query, row) that must not be returned.
            allowed: (L + A,) False for labels that must not be returned.
            candidates: Whether only the rows count and a few may be missed: they are scored again.

        Returns:
            (B, k).
        """
        n, columns = len(self), self.columns[head]
        if allowed is not None and allowed.shape != (n + len(added),):
            raise ValueError(f"allowed must be ({n + len(added)},) bool, got {allowed.shape}")
        pairs = check_exclude(exclude, len(queries), n + len(added))
        early = pairs[:, 1] < n
        own = None if allowed is None else allowed[:n]
        asked = queries[:, columns]
        index = self._candidate_index(head) if candidates else self.index(head)
        top = index.search(asked, k, exclude=pairs[early], allowed=own)
        if not len(added):
            return top
        late = None if allowed is None else allowed[n:]
        some = pairs[~early] - np.array([0, n])
        if len(some) or columns != slice(0, self.width):
            more = ExactIndex(added.vectors[:, columns]).search(
                asked, k, exclude=some, allowed=late
            )
        else:
            more = added.search(asked, k, allowed=late, exact_scores=not candidates)
        rows = np.where(more.rows < 0, -1, more.rows + n)
        return merged([top, TopK(rows, more.scores)], len(queries), k)

    @torch.no_grad()
    def pair_scores(
        self, queries: torch.Tensor, rows: torch.Tensor, added: GrowingIndex, heads: tuple[str, ...]
    ) -> dict[str, torch.Tensor]:
        """Score chosen labels of each query: head to (B, K), 0 where the row is -1.

        Args:
            queries: (B, heads * dim).
            rows: (B, K) label rows, -1 for none.
            added: Vectors of the labels behind the trained ones.
            heads: Which scores to return; all of them read each label's vector once.

        Returns:
            ``(queries @ vectors.T)[query, row]`` over the columns of each head.
        """
        trained, n, late = self.tensor(), len(self), None
        if len(queries) == 1 and queries.device == trained.device:
            # Few vectors: gathered once for all heads.
            own = self.vectors_of(rows[0], added)
            products = {h: own[:, c] @ queries[0, c] for h, c in self.columns.items() if h in heads}
            return {head: products[head].masked_fill_(rows[0] < 0, 0.0)[None] for head in heads}
        if len(added):
            late = rows >= n
            late = late if bool(late.any()) else None
        scores = {}
        for head in heads:
            columns = self.columns[head]
            found = _products(queries, trained, rows, columns)
            if late is not None:
                own = _products(queries, added.vectors, rows - n, columns)
                found = torch.where(late, own, found)
            scores[head] = found.masked_fill_(rows < 0, 0.0)
        return scores

    def vectors_of(self, rows: torch.Tensor, added: GrowingIndex) -> torch.Tensor:
        """Gather label vectors: (...,) rows to (..., heads * dim); those of row 0 for -1."""
        trained, n = self.tensor(), len(self)
        flat = rows.reshape(-1).to(trained.device)
        found = trained.index_select(0, flat.clamp(0, n - 1)).to(self.device)
        if len(added):
            late = torch.nonzero(flat >= n).squeeze(1)
            if len(late):
                found[late] = added.vectors.index_select(0, flat[late] - n).to(self.device)
        return found.view(*rows.shape, self.width)


def _products(
    queries: torch.Tensor, vectors: torch.Tensor, rows: torch.Tensor, columns: slice
) -> torch.Tensor:
    """Compute the products of chosen pairs over some columns, where the vectors are.

    All heads have the same width. A table of (L, heads * dim) is read, without a copy, as one of
    (L * heads, dim).
    """
    dim = columns.stop - columns.start
    heads, place = vectors.shape[1] // dim, columns.start // dim
    asked, wanted = queries[:, columns].to(vectors.device), rows.to(vectors.device)
    found = pair_products(asked, vectors.reshape(-1, dim), wanted * heads + place)
    return found.to(queries.device)
