"""Sparse training texts in batches, laid out for dense weights of a block of labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.matrices import count_terms, row_numbers

POWER_STEPS = 100
POWER_TOLERANCE = 1e-3


@dataclass(frozen=True)
class DeviceRows:
    """A sparse matrix on any device; ``times(other)`` equals ``matrix @ other``."""

    columns: torch.Tensor
    starts: torch.Tensor
    values: torch.Tensor

    @classmethod
    def of(cls, matrix: sp.csr_matrix, device: torch.device | str) -> DeviceRows:
        """Copy a matrix to a device."""
        parts = (matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32), matrix.data)
        return cls(*(torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts))

    def times(self, other: torch.Tensor) -> torch.Tensor:
        """Return (N, L) for other (V, L)."""
        return torch.nn.functional.embedding_bag(
            self.columns,
            other,
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )


@dataclass(frozen=True)
class TextBatch:
    """A batch of B texts."""

    rows: torch.Tensor
    """(B,) positions of the texts."""
    texts: DeviceRows
    """(B, V)."""
    terms: torch.Tensor
    """(U,) terms that occur in the batch."""
    transposed: DeviceRows
    """(U, B)."""
    decay: torch.Tensor
    """(U, 1) share of the decay that is due in this batch; 1 per epoch for every term."""
    damping: torch.Tensor
    """(B, 1) at most 1."""


@dataclass(frozen=True)
class TextBatches:
    """Batches and step sizes, which are the same for all labels."""

    batches: list[TextBatch]
    scale: torch.Tensor
    """(V, 1) step of a term: one over the root of its curvature."""
    crowding: float
    """Largest curvature of a batch minus that of a single text."""
    converged: bool
    """Whether the power iteration behind ``crowding`` converged."""

    @classmethod
    def of(
        cls, queries: sp.csr_matrix, size: int, seed: int, device: torch.device | str
    ) -> TextBatches:
        """Build batches in one random order."""
        squares = sp.csr_matrix(queries.multiply(queries))
        curvature = np.asarray(squares.sum(axis=0)).ravel()
        scale = (1.0 + curvature) ** -0.5
        # The curvature of a text is 1 on average in these units.
        scale *= curvature.sum() / max((scale * curvature).sum(), 1e-30)
        damping = 1.0 / np.maximum(1.0, squares @ scale)
        order = np.random.default_rng([seed, 7]).permutation(queries.shape[0])
        batches = []
        visits = _visits(queries[order], size)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            own = queries[rows]
            transposed = sp.csr_matrix(own.T)
            terms = np.flatnonzero(np.diff(transposed.indptr))
            batches.append(
                TextBatch(
                    torch.from_numpy(rows).to(device),
                    DeviceRows.of(own, device),
                    torch.from_numpy(terms).to(device),
                    DeviceRows.of(transposed[terms], device),
                    torch.from_numpy((1.0 / visits[terms, None]).astype(np.float32)).to(device),
                    torch.from_numpy(damping[rows, None].astype(np.float32)).to(device),
                )
            )
        root = sp.diags_array(np.sqrt(damping[order[:size]])) @ queries[order[:size]]
        scaled = sp.csr_matrix(root @ sp.diags_array(np.sqrt(scale)))
        largest, converged = largest_eigenvalue(scaled)
        columns = torch.from_numpy(scale[:, None].astype(np.float32)).to(device)
        return cls(batches, columns, max(0.0, largest - 1.0), converged)


def _visits(queries: sp.csr_matrix, size: int) -> NDArray[np.int64]:
    """Return (V,) the number of batches of ``size`` rows that contain each term, at least 1."""
    batch = row_numbers(queries) // size
    n_batches = -(-queries.shape[0] // size)
    occurs = count_terms(batch, queries.indices, (n_batches, queries.shape[1]))
    return np.maximum(1, np.bincount(occurs.indices, minlength=queries.shape[1]))


def largest_eigenvalue(matrix: sp.csr_matrix) -> tuple[float, bool]:
    """Estimate the largest eigenvalue of ``matrix.T @ matrix`` from below by power iteration.

    Returns:
        The eigenvalue, and whether its last relative change was below ``POWER_TOLERANCE``.
    """
    vector = np.ones(matrix.shape[1])
    found = 0.0
    for _ in range(POWER_STEPS):
        before = found
        vector = matrix.T @ (matrix @ (vector / max(float(np.linalg.norm(vector)), 1e-30)))
        found = float(np.linalg.norm(vector))
        if abs(found - before) <= POWER_TOLERANCE * found:
            return found, True
    return found, False
