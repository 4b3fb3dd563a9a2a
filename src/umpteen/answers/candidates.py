"""Labels worth a look for each query, and what every view says of them. No model of fusion here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.types import TopK

PARTS = ("dual", "classifier", "votes", "lexical")
"""What can be switched off."""
VIEWS = {
    "dual": "dual",
    "classifier": "classifier",
    "votes": "votes",
    "words": "lexical",
    "margins": "lexical",
    "word_votes": "lexical",
}
"""Each score of a candidate, and the part it belongs to."""


@dataclass(frozen=True)
class Candidates:
    """C pairs of query and label, a query's one after the other in rising order of rows."""

    queries: NDArray[np.int64]
    """(C,) positions, rising."""
    rows: NDArray[np.int64]
    """(C,) label rows."""
    scores: dict[str, NDArray[np.float32]]
    """View to (C,)."""
    n_queries: int

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each query that has candidates begins."""
        return np.flatnonzero(np.append(True, np.diff(self.queries) != 0)[: len(self)])

    def of(self, chosen: NDArray[np.bool_]) -> Candidates:
        """The candidates of some queries, renumbered.

        Args:
            chosen: (N,) which queries.

        Returns:
            Their candidates.
        """
        kept = chosen[self.queries]
        position = np.cumsum(chosen) - 1
        return Candidates(
            position[self.queries[kept]],
            self.rows[kept],
            {view: values[kept] for view, values in self.scores.items()},
            int(chosen.sum()),
        )


def union(
    tops: Sequence[NDArray[np.int64]], exclude: NDArray[np.int64] | None, n_labels: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every label that any list holds for a query, once.

    Args:
        tops: (B, K) rows each, -1 where there is none.
        exclude: (M, 2) pairs (query, row) to leave out.
        n_labels: All rows are below this.

    Returns:
        Queries and rows, sorted by query, then row.
    """
    rows = np.concatenate(tops, axis=1)
    keys = np.arange(len(rows), dtype=np.int64)[:, None] * n_labels + rows
    keys = np.unique(keys[rows >= 0])
    if exclude is not None and len(exclude):
        keys = keys[~np.isin(keys, exclude[:, 0] * np.int64(n_labels) + exclude[:, 1])]
    return keys // n_labels, keys % n_labels


def look_up(
    matrix: sp.csr_matrix, queries: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """``matrix[queries, rows]``, 0 where nothing is stored or the row is beyond the matrix."""
    keys = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    width = np.int64(max(matrix.shape[1], int(rows.max(initial=0)) + 1))
    keys = keys * width + matrix.indices  # rising: columns are sorted
    wanted = queries * width + rows
    places = np.searchsorted(keys, wanted)
    found = places < len(keys)
    found[found] = keys[places[found]] == wanted[found]
    values = np.zeros(len(wanted), np.float32)
    values[found] = matrix.data[places[found]]
    return values


def best_stored(matrix: sp.csr_matrix, k: int) -> NDArray[np.int64]:
    """(B, k) columns of the largest stored values of each row, -1 where there are fewer.

    Equal values: the smaller column first. Columns must be sorted.
    """
    n = matrix.shape[0]
    of_row = np.repeat(np.arange(n), np.diff(matrix.indptr))
    order = np.lexsort((-matrix.data, of_row))  # stable, so equal values stay by column
    places = np.arange(len(order)) - matrix.indptr[of_row]
    kept = places < k
    rows = np.full((n, k), -1, np.int64)
    rows[of_row[kept], places[kept]] = matrix.indices[order][kept]
    return rows


def first_places(scores: NDArray[np.float64], candidates: Candidates, k: int) -> NDArray[np.int64]:
    """(N, k) where the k best candidates of each query are, -1 where there are fewer.

    Equal scores: the smaller row first.
    """
    n = candidates.n_queries
    order = np.lexsort((candidates.rows, -scores, candidates.queries))
    queries = candidates.queries[order]
    starts = np.searchsorted(queries, np.arange(n))
    places = np.arange(len(order)) - starts[queries]
    kept = places < k
    first = np.full((n, k), -1, np.int64)
    first[queries[kept], places[kept]] = order[kept]
    return first


def best_candidates(
    scores: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    candidates: Candidates,
    k: int,
) -> TopK:
    """The k best candidates of each query with their probabilities; ties by the smaller row."""
    first = first_places(scores, candidates, k)
    best = np.append(probabilities, -np.inf).astype(np.float32)
    return TopK(np.append(candidates.rows, -1)[first], best[first])
