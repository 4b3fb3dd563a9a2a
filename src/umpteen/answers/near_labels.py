"""The best labels of many queries by sparse weights, without a dense row of all labels each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.words import heaviest

POSTINGS = 300
"""Labels of a word that are looked at: those it weighs most for."""
FEW_LABELS = 16384
"""Up to this many labels, a dense row of scores is cheaper than a sparse one."""
DENSE_WEIGHTS = 64 << 20
"""Weights of the commonest words that are kept dense there."""
BLOCK_ENTRIES = 16 << 20


def near_labels(
    queries: sp.csr_matrix,
    turned: sp.csr_matrix,
    k: int,
    *,
    device: torch.device | str = "cpu",
    until: float = np.inf,
) -> NDArray[np.int64]:
    """For each query the k labels with the best positive scores, best first.

    With many labels only the ``POSTINGS`` labels that a word weighs most for are looked at.

    Args:
        queries: (N, V).
        turned: (V, L) weights.
        k: How many.
        device: Where to multiply.
        until: By ``time.monotonic``; no further block is begun after it.

    Returns:
        (M, k) of the first M queries, M = N unless time ran out; -1 where fewer are above 0.
    """
    n, n_labels = queries.shape[0], turned.shape[1]
    k = min(k, n_labels)
    if torch.device(device).type != "cpu":
        blocks = _on_device(queries, turned, k, torch.device(device))
    elif n_labels <= FEW_LABELS:
        blocks = _few(queries, turned, k)
    else:
        blocks = _many(queries, heaviest(turned, POSTINGS), k)
    found = []
    for rows in blocks:
        found.append(rows)
        if time.monotonic() > until:
            break
    return np.concatenate(found) if found else np.zeros((n, k), np.int64)


def _positive(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of the k best of each row, and which of them are above 0."""
    best, places = torch.topk(scores, k, dim=1)
    return places, best > 0


def _few(queries: sp.csr_matrix, turned: sp.csr_matrix, k: int) -> Iterator[NDArray[np.int64]]:
    """Dense rows of scores: the commonest words from a dense table, the others sparse."""
    n_labels = turned.shape[1]
    common = np.argsort(-np.diff(turned.indptr), kind="stable")
    common = np.sort(common[: DENSE_WEIGHTS // n_labels])
    table = turned[common].toarray()
    rest = np.ones(turned.shape[0], np.float32)
    rest[common] = 0.0
    others = sp.csr_matrix(sp.diags_array(rest) @ turned)
    others.eliminate_zeros()
    step = max(1, BLOCK_ENTRIES // n_labels)
    for start in range(0, queries.shape[0], step):
        some = queries[start : start + step]
        scores = some[:, common] @ table + (some @ others).toarray()
        places, positive = _positive(torch.from_numpy(scores), k)
        yield torch.where(positive, places, -1).numpy()


def _many(queries: sp.csr_matrix, turned: sp.csr_matrix, k: int) -> Iterator[NDArray[np.int64]]:
    """Sparse rows of scores, laid side by side."""
    products = np.concatenate([[0], np.cumsum(np.diff(turned.indptr)[queries.indices])])
    reach = products[queries.indptr]
    start = 0
    while start < queries.shape[0]:
        stop = int(np.searchsorted(reach, reach[start] + BLOCK_ENTRIES // 4, side="right")) - 1
        stop = max(start + 1, stop)
        scores = queries[start:stop] @ turned
        counts = np.diff(scores.indptr)
        width = max(k, int(counts.max()))
        at = np.arange(scores.nnz) + np.repeat(
            np.arange(len(counts)) * width - scores.indptr[:-1], counts
        )
        side = np.zeros(len(counts) * width, np.float32)
        labels = np.zeros(len(counts) * width, np.int32)
        side[at], labels[at] = scores.data, scores.indices
        places, positive = _positive(torch.from_numpy(side.reshape(-1, width)), k)
        found = np.take_along_axis(labels.reshape(-1, width), places.numpy(), axis=1)
        yield np.where(positive.numpy(), found, -1).astype(np.int64)
        start = stop


def _on_device(
    queries: sp.csr_matrix, turned: sp.csr_matrix, k: int, device: torch.device
) -> Iterator[NDArray[np.int64]]:
    """All weights sparse on the device, times some queries as dense columns."""
    weights = sp.csr_matrix(turned.T)
    parts = (weights.indptr, weights.indices, weights.data)
    crow, column, values = (torch.from_numpy(part).to(device) for part in parts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        stored = torch.sparse_csr_tensor(
            crow.long(), column.long(), values, weights.shape, check_invariants=False
        )
    step = max(1, 4 * BLOCK_ENTRIES // max(weights.shape))
    for start in range(0, queries.shape[0], step):
        some = queries[start : start + step].tocoo()
        dense = torch.zeros(weights.shape[1], some.shape[0], device=device)
        at = (torch.from_numpy(part.astype(np.int64)).to(device) for part in (some.col, some.row))
        dense[tuple(at)] = torch.from_numpy(some.data).to(device)
        places, positive = _positive((stored @ dense).T.contiguous(), k)
        yield torch.where(positive, places, -1).cpu().numpy()
