"""Vectors that may lie in a file: read in blocks and by row, with bounded resident memory."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.errors import UmpteenError
from umpteen.index import base

BLOCK_ROWS = 1 << 16
RELEASE_ROWS = 1 << 13
"""Rows gathered from a mapped file before its pages are given back. A fault maps up to 64 KiB."""
SAMPLED_ROWS = 256


class MappedRows:
    """(L, D) vectors as float32, whatever they are stored as; nothing is read before it is used.

    Pages of a mapped file stay in the page cache of the system; they are given back by the process
    after each block, and after every 8,192 gathered rows.

    Args:
        vectors: (L, D), a NumPy array, memory-mapped or not, or a torch tensor.

    Raises:
        UmpteenError: If the shape is wrong.
    """

    def __init__(self, vectors: Any) -> None:
        if isinstance(vectors, torch.Tensor):
            vectors = vectors.detach().cpu()
        elif not isinstance(vectors, np.ndarray):
            vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise UmpteenError(
                f"label vectors have the shape {tuple(vectors.shape)}; expected (labels, "
                "dimensions), at least one of each"
            )
        self.vectors = vectors
        self.n_rows, self.dim = (int(size) for size in vectors.shape)
        self._mapping = _mapping_of(vectors)
        self._gathered = 0

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return a copy of neighbouring rows: (stop - start, D)."""
        found = _float32(self.vectors[start:stop])
        self.release()
        return found

    def blocks(self, n_rows: int = BLOCK_ROWS) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield the first row of each block and the block."""
        for start in range(0, self.n_rows, n_rows):
            yield start, self.block(start, min(start + n_rows, self.n_rows))

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Gather rows: (...,) to (..., D)."""
        flat = rows.reshape(-1)
        picked = torch.from_numpy(flat) if isinstance(self.vectors, torch.Tensor) else flat
        found = _float32(self.vectors[picked])
        self._gathered += len(flat)
        if self._gathered >= RELEASE_ROWS:
            self.release()
        return found.reshape(*rows.shape, self.dim)

    def release(self) -> None:
        """Give back the pages of a mapped file; they are read again when they are used."""
        self._gathered = 0
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def fingerprint(self) -> str:
        """Return a digest of shape and 256 rows: whether an index was built from these vectors."""
        rows = np.unique(np.linspace(0, self.n_rows - 1, SAMPLED_ROWS).astype(np.int64))
        digest = hashlib.sha256(f"{self.n_rows} {self.dim}".encode())
        digest.update(self.take(rows).tobytes())
        return digest.hexdigest()


def checked(block: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a block whose values are all finite.

    Raises:
        UmpteenError: If one is not.
    """
    base.check_vectors(block)
    return block


def _float32(values: Any) -> NDArray[np.float32]:
    if isinstance(values, torch.Tensor):
        copied: NDArray[np.float32] = values.to(torch.float32, copy=True).contiguous().numpy()
        return copied
    return np.array(values, np.float32, order="C")


def _mapping_of(vectors: Any) -> mmap.mmap | None:
    """Return the read-only or private mapping that an array is a view of."""
    owner = vectors
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap) and owner.mode not in ("r", "c"):
            return None
        owner = owner.base
    # Written pages of a private mapping would be lost; label vectors are never written to.
    return owner if isinstance(owner, mmap.mmap) else None
