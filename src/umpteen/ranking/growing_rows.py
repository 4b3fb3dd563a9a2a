"""Sparse rows that grow: immutable versions that share their arrays. One writer, many readers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import scipy.sparse as sp

from umpteen.index.growing import LEVEL_RATIO, TAIL_ROWS
from umpteen.ranking.lexical.sparse_topk import inverted_texts


@dataclass(frozen=True)
class SparseBlock:
    """Consecutive sparse rows."""

    start: int
    rows: sp.csr_matrix

    @property
    def stop(self) -> int:
        """The first row behind the block."""
        return self.start + int(self.rows.shape[0])

    @cached_property
    def inverted(self) -> sp.csr_matrix:
        """The rows as an inverted index, made when first needed; pruned in a large block."""
        return inverted_texts(self.rows)


@dataclass(frozen=True)
class GrowingRows:
    """Sparse rows in blocks whose sizes rise geometrically (see ``index/growing.py``)."""

    n_columns: int
    blocks: tuple[SparseBlock, ...] = ()

    def __len__(self) -> int:
        return self.blocks[-1].stop if self.blocks else 0

    def extended(self, rows: sp.csr_matrix) -> GrowingRows:
        """Return a version with more rows behind the last one."""
        if not rows.shape[0]:
            return self
        blocks, parts, total = list(self.blocks), [rows], int(rows.shape[0])
        if blocks and blocks[-1].rows.shape[0] < TAIL_ROWS:
            total += int(blocks[-1].rows.shape[0])
            parts.insert(0, blocks.pop().rows)
        while total >= TAIL_ROWS and blocks and blocks[-1].rows.shape[0] < LEVEL_RATIO * total:
            total += int(blocks[-1].rows.shape[0])
            parts.insert(0, blocks.pop().rows)
        start = blocks[-1].stop if blocks else 0
        joined = parts[0] if len(parts) == 1 else sp.vstack(parts, format="csr")
        blocks.append(SparseBlock(start, sp.csr_matrix(joined)))
        return GrowingRows(self.n_columns, tuple(blocks))
