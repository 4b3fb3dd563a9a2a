"""Products of sparse queries with sparse weights on a device, their top-k and look-ups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.index.topk import KeyedTop, RunningTop
from umpteen.ranking.lexical.matrices import CsrArrays, row_numbers

PRODUCTS_AT_ONCE = 64 << 20
"""Products of a query's and a weight's value that are added up at once."""


@dataclass(frozen=True)
class DeviceMatrix:
    """A CSR matrix (V, L) on a device."""

    starts: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: sp.csr_matrix, device: torch.device | str) -> DeviceMatrix:
        """Copy a matrix to a device."""
        parts = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data)
        starts, columns, values = (torch.from_numpy(part).to(device) for part in parts)
        return cls(starts, columns, values.float(), matrix.shape)

    def product(self, queries: sp.csr_matrix) -> DeviceScores:
        """Multiply queries (B, V) with the matrix; the result is a dense block (B, L)."""
        device = self.values.device
        n, n_columns = queries.shape[0], self.shape[1]
        flat = torch.zeros(n * n_columns, device=device)
        terms = torch.from_numpy(queries.indices.astype(np.int64)).to(device)
        values = torch.from_numpy(queries.data.astype(np.float32)).to(device)
        offsets = torch.from_numpy(row_numbers(queries) * n_columns).to(device)
        begins, lengths = self.starts[terms], self.starts.diff()[terms]
        ends = np.concatenate([[0], np.cumsum(lengths.cpu().numpy())])
        start = 0
        while start < len(terms):
            stop = int(np.searchsorted(ends, ends[start] + PRODUCTS_AT_ONCE, side="right")) - 1
            some = slice(start, min(len(terms), max(start + 1, stop)))
            own, total = lengths[some], int(ends[some.stop] - ends[start])
            each = torch.repeat_interleave(
                torch.arange(start, some.stop, device=device), own, output_size=total
            )
            # Position among the postings of its own term.
            within = torch.arange(total, device=device) - (own.cumsum(0) - own)[each - start]
            at = begins[each] + within
            flat.index_add_(0, offsets[each] + self.columns[at], values[each] * self.values[at])
            start = some.stop
        return DeviceScores(flat.view(n, n_columns))


@dataclass(frozen=True)
class DeviceScores:
    """A product on a device: a dense block of scores, 0 where no term matches."""

    values: torch.Tensor
    """(B, L)."""

    @classmethod
    def of(cls, matrix: sp.csr_matrix | CsrArrays, device: torch.device) -> DeviceScores:
        """Copy sparse scores without duplicates to a device."""
        values = torch.zeros(matrix.shape, device=device)
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        at = torch.from_numpy(rows * np.int64(matrix.shape[1]) + matrix.indices).to(device)
        values.view(-1)[at] = torch.from_numpy(matrix.data).to(device)
        return cls(values)

    def top_k(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Find the k best positive scores of each row; see ``sparse_topk.top_k_of_rows``."""
        scores = self.values
        n, n_columns = scores.shape
        keep = min(k, n_columns)
        rows = torch.full((n, k), -1, dtype=torch.int64, device=scores.device)
        best = torch.full((n, k), -torch.inf, device=scores.device)
        if not keep or not n:
            return rows, best
        positive = torch.where(scores > 0, scores, -torch.inf)
        top = RunningTop(n, keep, scores.device)
        top.add(positive, 0)
        rows[:, :keep], best[:, :keep] = top.rows, top.scores
        again = top.unsure().nonzero().squeeze(1)
        if len(again):
            keyed = KeyedTop(len(again), keep, scores.device)
            keyed.add(positive[again], 0)
            rows[again, :keep], best[again, :keep] = keyed.rows, keyed.scores
        rows[torch.isneginf(best)] = -1
        return rows, best

    def look_up(self, rows: NDArray[np.int64] | torch.Tensor) -> torch.Tensor:
        """Return (B, K) the scores of some columns; see ``sparse_topk.look_up``."""
        where = torch.as_tensor(rows, device=self.values.device)
        n_columns = self.values.shape[1]
        if not n_columns:
            return torch.zeros(where.shape, device=where.device)
        there = (where >= 0) & (where < n_columns)
        return self.values.gather(1, torch.where(there, where, 0)) * there
