"""Sparse queries in batches, laid out for dense weights of some labels. No loss here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

POWER_STEPS = 20


@dataclass(frozen=True)
class Rows:
    """A sparse matrix whose product with a dense one is a sum of the other's rows, on any device.

    ``times(other)`` equals ``matrix @ other``.
    """

    columns: torch.Tensor
    starts: torch.Tensor
    values: torch.Tensor

    @classmethod
    def of(cls, matrix: sp.csr_matrix, device: torch.device | str) -> Rows:
        """The same matrix."""
        parts = (matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32), matrix.data)
        return cls(*(torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts))

    def times(self, other: torch.Tensor) -> torch.Tensor:
        """(N, L) of (V, L)."""
        return torch.nn.functional.embedding_bag(
            self.columns,
            other,
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )


@dataclass(frozen=True)
class QueryBatch:
    """A batch of queries."""

    rows: torch.Tensor
    """(B,) which."""
    queries: Rows
    """(B, V)."""
    words: torch.Tensor
    """(U,) that any of them has."""
    turned: Rows
    """(U, B)."""
    damping: torch.Tensor
    """(B, 1) at most 1."""


@dataclass(frozen=True)
class QueryBatches:
    """All that is the same for every label: batches, and how far a step may go."""

    parts: list[QueryBatch]
    scale: torch.Tensor
    """(V, 1) of a word's step: one over the root of its curvature."""
    crowding: float
    """How much more than one query alone a whole batch bends the loss."""

    @classmethod
    def of(
        cls, queries: sp.csr_matrix, size: int, seed: int, device: torch.device | str
    ) -> QueryBatches:
        """Batches in one random order."""
        squares = sp.csr_matrix(queries.multiply(queries))
        curvature = np.asarray(squares.sum(axis=0)).ravel()
        scale = (1.0 + curvature) ** -0.5
        scale *= curvature.sum() / max(
            (scale * curvature).sum(), 1e-30
        )  # a query's is 1 on average
        damping = 1.0 / np.maximum(1.0, squares @ scale)
        order = np.random.default_rng([seed, 7]).permutation(queries.shape[0])
        parts = []
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            own = queries[rows]
            turned = sp.csr_matrix(own.T)
            words = np.flatnonzero(np.diff(turned.indptr))
            parts.append(
                QueryBatch(
                    torch.from_numpy(rows).to(device),
                    Rows.of(own, device),
                    torch.from_numpy(words).to(device),
                    Rows.of(turned[words], device),
                    torch.from_numpy(damping[rows, None].astype(np.float32)).to(device),
                )
            )
        root = sp.diags_array(np.sqrt(damping[order[:size]])) @ queries[order[:size]]
        crowding = largest_eigenvalue(sp.csr_matrix(root @ sp.diags_array(np.sqrt(scale)))) - 1.0
        columns = torch.from_numpy(scale[:, None].astype(np.float32)).to(device)
        return cls(parts, columns, max(0.0, crowding))


def largest_eigenvalue(matrix: sp.csr_matrix) -> float:
    """Of ``matrix.T @ matrix``, from below, by power steps."""
    vector = np.ones(matrix.shape[1])
    length = 0.0
    for _ in range(POWER_STEPS):
        vector = matrix.T @ (matrix @ (vector / max(float(np.linalg.norm(vector)), 1e-30)))
        length = float(np.linalg.norm(vector))
    return length
