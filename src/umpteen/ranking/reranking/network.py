"""A small network over the features of a pair of text and label, beside the pair's vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

WIDTH = 64
LIMIT = 8.0
"""Largest standardized feature."""


class ScoreNetwork(nn.Module):
    """Two hidden layers from standardized features to what is added to the ensemble's score.

    It starts with 0 for every pair: the order of the ensemble.

    Args:
        n_features: F.
        vector_dim: Width of the vectors of pairs; 0 without them.
        width: Of the hidden layers.
        dropout: On the hidden layers, while training.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self, n_features: int, vector_dim: int = 0, width: int = WIDTH, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.first = nn.Linear(n_features, width)
        self.pair = nn.Linear(vector_dim, width, bias=False) if vector_dim else None
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def standardize_(self, values: Tensor) -> None:
        """Take mean and scale from (N, F) features."""
        self.mean.copy_(values.double().mean(dim=0))
        scale = values.double().std(dim=0, correction=0)
        self.scale.copy_(torch.where(scale > 1e-6, scale, 1.0))

    def forward(self, features: Tensor, vectors: Tensor | None = None) -> Tensor:
        """Score pairs.

        Args:
            features: (P, F).
            vectors: (P, D) of the pairs, where the network reads them.

        Returns:
            (P,) what is added to the ensemble's score.
        """
        inputs = ((features - self.mean) / self.scale).clamp(-LIMIT, LIMIT)
        hidden = self.first(inputs)
        if self.pair is not None and vectors is not None:
            hidden = hidden + self.pair(vectors)
        hidden = self.dropout(gelu(hidden))
        hidden = self.dropout(gelu(self.second(hidden)) + hidden)
        return self.last(hidden).squeeze(1)
