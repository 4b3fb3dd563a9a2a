"""Mine the best-scored labels of many training texts under sparse weights."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.threads import map_in_threads
from umpteen.ranking.lexical.device_topk import DeviceMatrix
from umpteen.ranking.lexical.sparse_topk import product, prune_postings, top_k_of_rows

MAX_POSTINGS = 300
"""Labels considered per term when there are many labels: those with the largest weights."""
FEW_LABELS = 16384
"""Up to this many labels a dense row of scores is cheaper than a sparse one."""
DENSE_WEIGHTS = 64 << 20
"""Weights of the most frequent terms that are kept dense in that case."""
BLOCK_ENTRIES = 16 << 20


def mine_hard_negatives(
    queries: sp.csr_matrix,
    weights: sp.csr_matrix,
    k: int,
    *,
    device: torch.device | str = "cpu",
    until: float = np.inf,
) -> NDArray[np.int64]:
    """Find the k labels with the best positive scores for each text, best first.

    With more than ``FEW_LABELS`` labels on the CPU, only the ``MAX_POSTINGS`` largest weights of a
    term are used.

    Args:
        queries: (N, V).
        weights: (V, L).
        k: How many.
        device: Where to multiply.
        until: In ``time.monotonic``; no further block is started after it.

    Returns:
        (M, k) for the first M texts, M = N unless time ran out; -1 where fewer are above 0.
    """
    n, n_labels = queries.shape[0], weights.shape[1]
    k = min(k, n_labels)
    if torch.device(device).type != "cpu":
        blocks = _on_device(queries, weights, k, torch.device(device))
    elif n_labels <= FEW_LABELS:
        blocks = _dense(queries, weights, k)
    else:
        blocks = _sparse(queries, prune_postings(weights, MAX_POSTINGS), k)
    found = []
    with contextlib.closing(blocks):
        for rows in blocks:
            found.append(rows)
            if time.monotonic() > until:
                break
    return np.concatenate(found) if found else np.zeros((n, k), np.int64)


def _dense(queries: sp.csr_matrix, weights: sp.csr_matrix, k: int) -> Generator[NDArray[np.int64]]:
    """Yield the top k from dense rows of scores; frequent terms come from a dense table."""
    n_labels = weights.shape[1]
    frequent = np.argsort(-np.diff(weights.indptr), kind="stable")
    frequent = np.sort(frequent[: DENSE_WEIGHTS // max(1, n_labels)])
    table = weights[frequent].toarray()
    rest = np.ones(weights.shape[0], np.float32)
    rest[frequent] = 0.0
    others = sp.csr_matrix(sp.diags_array(rest) @ weights)
    others.eliminate_zeros()
    step = max(1, BLOCK_ENTRIES // max(1, n_labels))
    for start in range(0, queries.shape[0], step):
        some = queries[start : start + step]
        scores = some[:, frequent] @ table + (some @ others).toarray()
        best, places = torch.topk(torch.from_numpy(scores), k, dim=1)
        yield torch.where(best > 0, places, -1).numpy()


def _sparse(queries: sp.csr_matrix, weights: sp.csr_matrix, k: int) -> Generator[NDArray[np.int64]]:
    """Yield the top k of sparse products of a bounded number of postings."""
    products = np.concatenate([[0], np.cumsum(np.diff(weights.indptr)[queries.indices])])
    reach = products[queries.indptr]

    def blocks() -> Generator[slice]:
        start = 0
        while start < queries.shape[0]:
            stop = int(np.searchsorted(reach, reach[start] + BLOCK_ENTRIES // 4, side="right")) - 1
            stop = max(start + 1, stop)
            yield slice(start, stop)
            start = stop

    def best(some: slice) -> NDArray[np.int64]:
        return top_k_of_rows(product(queries[some], weights), k)[0]

    yield from map_in_threads(best, blocks())


def _on_device(
    queries: sp.csr_matrix, weights: sp.csr_matrix, k: int, device: torch.device
) -> Generator[NDArray[np.int64]]:
    """Yield the top k of products on a device."""
    stored = DeviceMatrix.of(weights, device)
    step = max(1, 16 * BLOCK_ENTRIES // max(1, weights.shape[1]))
    for start in range(0, queries.shape[0], step):
        yield top_k_of_rows(product(queries[start : start + step], stored), k)[0].cpu().numpy()
