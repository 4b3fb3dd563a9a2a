"""Top labels of an index and of a few vectors beside it, as if all were in one index."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.index.base import LabelIndex, check_exclude
from umpteen.index.exact import ExactIndex
from umpteen.types import TopK


def search_grown(
    index: LabelIndex,
    added: torch.Tensor,
    queries: torch.Tensor,
    k: int,
    *,
    exclude: NDArray[np.int64] | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> TopK:
    """The k best labels of an index with A more behind its last row.

    Equals a search of one exact index over all L + A vectors where the index is exact; a
    compressed index scores its own labels as roughly as ever and the added ones exactly.

    Args:
        index: Over L labels, of any kind.
        added: (A, D) vectors of the rows L to L + A.
        queries: (B, D).
        k: How many labels to return.
        exclude: (M, 2) pairs (query position, row) that must not be returned.
        allowed: (L + A,) False for labels that no query may get.

    Returns:
        (B, k) rows and scores.
    """
    n, n_all = index.n_labels, index.n_labels + len(added)
    if allowed is not None and allowed.shape != (n_all,):
        raise ValueError(f"allowed must be ({n_all},) bool, got {allowed.shape}")
    pairs = check_exclude(exclude, len(queries), n_all)
    early = pairs[:, 1] < n
    top = index.search(
        queries, k, exclude=pairs[early], allowed=None if allowed is None else allowed[:n]
    )
    if not len(added):
        return top
    more = ExactIndex(added).search(
        queries,
        k,
        exclude=pairs[~early] - np.array([0, n]),
        allowed=None if allowed is None else allowed[n:],
    )
    rows = np.concatenate([top.rows, np.where(more.rows < 0, -1, more.rows + n)], axis=1)
    scores = np.concatenate([top.scores, more.scores], axis=1)  # (B, 2 k)
    # Stable, and each half is in order: equal scores stay in the order of rows.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return TopK(np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))
