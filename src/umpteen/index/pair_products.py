"""Inner products of chosen pairs of query and row, without those of all others."""

from __future__ import annotations

import warnings

import torch

GATHER_BYTES = 256 << 20
"""Gathered vectors at a time on a GPU."""


@torch.no_grad()
def pair_products(queries: torch.Tensor, vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Compute ``(queries @ vectors.T)[b, rows[b, j]]``.

    Args:
        queries: (B, D) float32.
        vectors: (L, D) float32 on the same device; at least one row.
        rows: (B, K) rows; -1 counts as row 0.

    Returns:
        (B, K) float32.
    """
    n_queries, width = rows.shape
    places = rows.clamp(0, len(vectors) - 1)
    if not places.numel():
        return torch.zeros(rows.shape, device=queries.device)
    if width > len(vectors):
        # Some rows occur twice. A sparse pattern holds no more entries than a dense one has.
        return torch.gather(queries @ vectors.T, 1, places)
    if not queries.is_cuda:
        # A sampled product reads each vector where it lies. Gathering them takes ten times as long.
        starts = torch.arange(0, n_queries * width + 1, width)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "sparse CSR support is in beta"
            pattern = torch.sparse_csr_tensor(
                starts,
                places.reshape(-1),
                torch.zeros(n_queries * width),
                (n_queries, len(vectors)),
                check_invariants=False,
            )
            scores = torch.sparse.sampled_addmm(
                pattern, queries.contiguous(), vectors.contiguous().T, beta=0.0
            )
        return scores.values().view(n_queries, width)
    found = torch.empty(rows.shape, device=queries.device)
    step = max(1, GATHER_BYTES // (4 * vectors.shape[1] * width))
    for start in range(0, n_queries, step):
        here = slice(start, start + step)
        own = vectors.index_select(0, places[here].reshape(-1))
        own = own.view(-1, width, vectors.shape[1])
        found[here] = torch.bmm(own, queries[here, :, None]).squeeze(2)
    return found
