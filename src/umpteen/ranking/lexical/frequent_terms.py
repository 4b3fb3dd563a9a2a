"""Weights of frequent terms as a dense table, to complete the scores of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.ranking.lexical.matrices import row_numbers

MAX_VALUES = 64 << 20
"""Values of the dense table; beyond it, the terms with the smallest weights are left out."""
GATHERED_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class FrequentTerms:
    """The pruned weights of frequent terms as a dense table.

    ``look_up(queries, rows)`` is what pruning took from the scores of candidates: a few gathered
    values per text, where a sparse product would visit most labels.
    """

    terms: NDArray[np.int64]
    """(F,) sorted."""
    table: NDArray[np.float32]
    """(F, L)."""

    @classmethod
    def of(cls, residual: sp.csr_matrix) -> FrequentTerms:
        """Build the table from pruned weights (V, L)."""
        terms = np.flatnonzero(np.diff(residual.indptr))
        room = MAX_VALUES // max(1, residual.shape[1])
        if len(terms) > room:
            sizes = np.asarray(abs(residual[terms]).sum(axis=1)).ravel()
            terms = np.sort(terms[np.argsort(-sizes, kind="stable")[:room]])
        return cls(terms, residual[terms].toarray())

    @cached_property
    def _ended_terms(self) -> NDArray[np.int64]:
        """(F + 1,) the terms and -1, which a search past the last term finds."""
        return np.append(self.terms, -1)

    def look_up(self, queries: sp.csr_matrix, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return (B, K) the scores of labels ``rows``, 0 for padding (-1) and for rows beyond L.

        Args:
            queries: (B, V) with rows in order.
            rows: (B, K).

        Returns:
            Float32.
        """
        found = np.zeros(rows.shape, np.float32)
        places = np.searchsorted(self.terms, queries.indices)
        hits = self._ended_terms[places] == queries.indices
        if not hits.any() or not rows.size:
            return found
        there = (rows >= 0) & (rows < self.table.shape[1])
        columns = np.where(there, rows, 0)
        texts = row_numbers(queries)[hits]
        lines, values = places[hits], queries.data[hits]
        step = max(1, GATHERED_AT_ONCE // rows.shape[1])
        starts = np.flatnonzero(np.append(True, texts[1:] != texts[:-1]))
        first = 0
        while first < len(starts):  # some texts at a time
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + step)))
            begin = starts[first]
            end = starts[last] if last < len(starts) else len(texts)
            own = columns[texts[begin:end]]
            gathered = self.table[lines[begin:end, None], own] * values[begin:end, None]
            marks = starts[first:last] - begin
            found[texts[starts[first:last]]] = np.add.reduceat(gathered, marks, axis=0)
            first = last
        found[~there] = 0.0
        return found
