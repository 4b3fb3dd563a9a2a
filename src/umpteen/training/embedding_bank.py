"""Label vectors as they were encoded last, for a loss over all labels."""

from __future__ import annotations

import torch
from torch import Tensor


class EmbeddingBank:
    """The vector of every label of this rank as it was encoded last."""

    def __init__(self) -> None:
        self.vectors: Tensor | None = None
        """(labels of this rank, D) on the model's device; None before anything was encoded."""

    def fill(self, vectors: Tensor) -> None:
        """Take new vectors for all labels; the tensor is the bank's own from now on."""
        self.vectors = vectors.detach()

    def update(self, rows: Tensor, fresh: Tensor) -> Tensor:
        """Store fresh vectors of some labels and return the vectors of all.

        Args:
            rows: (C,) the labels with fresh vectors, each once.
            fresh: (C, D) their vectors.

        Returns:
            The bank itself and no copy, without a gradient; it is good until the next call.
        """
        assert self.vectors is not None
        with torch.no_grad():
            self.vectors.index_copy_(0, rows, fresh.detach().to(self.vectors.dtype))
        return self.vectors
