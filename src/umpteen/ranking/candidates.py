"""Candidate labels of a batch of queries as rectangular tensors, padded with row -1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NO_ROW = -1
"""Row of a padding place."""


@dataclass(frozen=True)
class Candidates:
    """Candidate labels of B queries with one score per retriever.

    All tensors have the shape (B, K) and live on one device. Rows ascend within a query; padding
    comes last.
    """

    rows: Tensor
    """(B, K) int64 label rows, -1 for padding."""
    scores: dict[str, Tensor]
    """Retriever name to (B, K) float32; values at padding places are ignored."""
    counts: Tensor
    """(B, K) training texts of each label; 0 for unseen labels and padding."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def valid(self) -> Tensor:
        """(B, K) bool: True for candidates, False for padding."""
        return self.rows >= 0

    @cached_property
    def seen(self) -> Tensor:
        """(B, K) bool: True for labels with at least one training text."""
        trained = self.counts > 0
        if self.complete and bool(trained.all()):
            return self.valid
        return self.valid & trained

    @cached_property
    def complete(self) -> bool:
        """Whether there is no padding, as for a single query; False on a GPU, which would wait."""
        return self.rows.device.type == "cpu" and bool(self.valid.all())

    def filled(self, values: Tensor, fill: float) -> Tensor:
        """Return (B, K) values with a constant at padding places."""
        return values if self.complete else torch.where(self.valid, values, fill)

    def select(self, queries: Tensor) -> Candidates:
        """Select queries.

        Args:
            queries: (B,) bool mask or (M,) int64 positions.

        Returns:
            The candidates of these queries, with the same K.
        """
        return Candidates(
            self.rows[queries],
            {name: values[queries] for name, values in self.scores.items()},
            self.counts[queries],
        )


def concat(blocks: Sequence[Candidates]) -> Candidates:
    """Concatenate blocks of queries; narrower blocks are padded."""
    width = max(block.rows.shape[1] for block in blocks)
    return Candidates(
        torch.cat([pad(block.rows, width, NO_ROW) for block in blocks]),
        {
            name: torch.cat([pad(block.scores[name], width, 0) for block in blocks])
            for name in blocks[0].scores
        },
        torch.cat([pad(block.counts, width, 0) for block in blocks]),
    )


def pad(values: Tensor, width: int, fill: float) -> Tensor:
    """Append columns of a constant to a (B, K) tensor.

    Args:
        values: (B, K).
        width: The new number of columns, at least K.
        fill: The constant.

    Returns:
        (B, width).
    """
    return torch.nn.functional.pad(values, (0, width - values.shape[1]), value=fill)


def union(lists: Sequence[Tensor], excluded: Tensor | None = None) -> Tensor:
    """Merge lists of label rows per query.

    Args:
        lists: (B, k_i) int64 rows each, -1 for none.
        excluded: (B, M) rows to leave out, -1 for none; see ``rows_of_pairs``.

    Returns:
        (B, K) rows, ascending and without duplicates, -1 at the end. K is the size of the largest
        union, at least 1.
    """
    if len(lists[0]) == 1 and excluded is None and lists[0].device.type == "cpu":
        rows_of_one = np.sort(torch.cat(list(lists), dim=1).numpy()[0])
        first = rows_of_one >= 0
        first[1:] &= rows_of_one[1:] != rows_of_one[:-1]
        kept = rows_of_one[first]
        return torch.from_numpy(kept if len(kept) else np.array([NO_ROW]))[None]
    # Twice the row, plus 1 for rows to keep: an excluded row sorts before its equals.
    keys = [2 * rows + 1 for rows in lists]
    if excluded is not None:
        keys.append(2 * excluded)
    merged = ascending(torch.cat(keys, dim=1))
    rows = merged >> 1
    keep = (merged & 1).bool() & (rows >= 0)
    keep[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    sizes = keep.sum(dim=1, keepdim=True)
    width = max(1, int(sizes.max())) if len(sizes) else 1
    found = torch.full((len(rows), width), NO_ROW, dtype=torch.int64, device=rows.device)
    places = torch.arange(width, device=rows.device) < sizes
    return found.masked_scatter_(places, rows[keep])


def ascending(values: Tensor) -> Tensor:
    """Sort each row of a (B, K) tensor, smallest first."""
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    # NumPy sorts values alone with SIMD instructions, some ten times faster than torch.
    return torch.from_numpy(np.sort(values.numpy(), axis=1))


def rows_of_pairs(pairs: Tensor, n_queries: int) -> Tensor:
    """Arrange pairs (query, row) as rows per query.

    Args:
        pairs: (M, 2) int64 in any order.
        n_queries: B; all queries are below it.

    Returns:
        (B, W) rows, -1 for none; W is the largest number of pairs of a query.
    """
    queries, order = pairs[:, 0].sort(stable=True)
    sizes = torch.bincount(queries, minlength=n_queries)
    width = int(sizes.max()) if len(pairs) else 0
    places = torch.arange(len(queries), device=pairs.device) - (sizes.cumsum(0) - sizes)[queries]
    rows = torch.full((n_queries, width), NO_ROW, dtype=torch.int64, device=pairs.device)
    rows[queries, places] = pairs[order, 1]
    return rows


def top_k(scores: Tensor, rows: Tensor, k: int) -> Tensor:
    """Find the k best candidates of each query.

    Ties go to the smaller row, which comes first among the candidates.

    Args:
        scores: (B, K) float32 or float64 without NaN at candidates.
        rows: (B, K) of the candidates.
        k: Places wanted.

    Returns:
        (B, k) int64 positions in 0..K-1, best first; -1 where a query has fewer candidates.
    """
    width = rows.shape[1]
    if len(rows) == 1 and rows.device.type == "cpu":
        return _top_k_of_one(scores[0].numpy(), rows[0].numpy(), k)
    scores = torch.where(rows >= 0, scores, -torch.inf)
    if scores.dtype == torch.float32:
        # The order of floats as integers, then the position: keys without ties.
        bits = (scores + 0.0).view(torch.int32).to(torch.int64)  # + 0.0 turns -0.0 into 0.0
        bits = torch.where(bits < 0, -1 - (bits & 0x7FFFFFFF), bits)
        places = torch.arange(width, device=rows.device)
        keys = (bits << 32) | (width - 1 - places)
        best = ascending(keys)[:, max(0, width - k) :].flip(1)
        positions = width - 1 - (best & 0xFFFFFFFF)
    else:
        positions = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    found = rows.gather(1, positions) >= 0
    return pad(torch.where(found, positions, -1), k, -1)


def _top_k_of_one(scores: NDArray[np.floating], rows: NDArray[np.int64], k: int) -> Tensor:
    """Find the k best candidates of a single query, with few calls."""
    there = rows >= 0
    order = np.argsort(np.where(there, -scores, np.inf), kind="stable")[:k]
    positions = np.full((1, k), -1, np.int64)
    positions[0, : len(order)] = np.where(there[order], order, -1)
    return torch.from_numpy(positions)


def take(values: Tensor, positions: Tensor, fill: float) -> Tensor:
    """Gather (B, K) values at the (B, k) positions of ``top_k``.

    Args:
        values: (B, K).
        positions: (B, k), -1 for none.
        fill: The value for none.

    Returns:
        (B, k).
    """
    found = values.gather(1, positions.clamp_min(0))
    return torch.where(positions >= 0, found, torch.full_like(found, fill))


def best_candidates(
    scores: Tensor, probabilities: Tensor, rows: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Return the k best candidates of each query with their probabilities.

    Args:
        scores: (B, K) that candidates are ranked by.
        probabilities: (B, K), rising with the scores within a query.
        rows: (B, K) of the candidates.
        k: Places wanted.

    Returns:
        (B, k) rows, -1 for none, and (B, k) probabilities that never rise along a query, -inf for
        none.
    """
    positions = top_k(scores, rows, k)
    best = take(probabilities, positions, -torch.inf)
    # Rounding can lift a probability above that of a better score by one bit.
    return take(rows, positions, NO_ROW), best.cummin(dim=1).values
