"""Pairs and labels that must not be returned, sorted into the blocks of a search. No scores."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def retired_columns(
    retired: NDArray[np.int64], n_labels: int, label_block: int, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Return the excluded columns of each label block."""
    firsts = np.arange(label_block, n_labels, label_block)
    counts = np.diff(np.searchsorted(retired, [0, *firsts, n_labels]))
    columns = torch.from_numpy(retired % label_block).to(device)
    return columns.split(counts.tolist())


def by_cell(
    pairs: NDArray[np.int64], n_queries: int, query_block: int, n_labels: int, label_block: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs in the order the blocks are visited, and where each block's pairs begin and end.

    Returns:
        The pairs, and (query blocks, label blocks + 1) bounds into them.
    """
    down, across = -(-n_queries // query_block), -(-n_labels // label_block)
    cell = (pairs[:, 0] // query_block) * across + pairs[:, 1] // label_block
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(cell[order], np.arange(down * across + 1))
    bounds = ends[np.arange(down)[:, None] * across + np.arange(across + 1)]
    return pairs[order], bounds


def pairs_of(pairs: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pairs of some queries (ascending positions).

    Renumbered to their place among them.
    """
    kept = pairs[np.isin(pairs[:, 0], queries)]
    return np.stack([np.searchsorted(queries, kept[:, 0]), kept[:, 1]], axis=1)
