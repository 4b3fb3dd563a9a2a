"""A small network over the features of a pair of text and label."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

WIDTH = 64
LIMIT = 8.0
"""Largest standardized feature."""


class ScoreNetwork(nn.Module):
    """Two hidden layers from standardized features to what is added to the ensemble's score.

    It starts with 0 for every pair: the order of the ensemble. With a cross-encoder it starts with
    that one's score.

    Args:
        n_features: F.
        direct: Column of a score that is also added as it is, with a factor that is learned.
        width: Of the hidden layers.
        dropout: On the hidden layers, while training.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        n_features: int,
        direct: int | None = None,
        width: int = WIDTH,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.direct = direct
        self.factor = None if direct is None else nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.first = nn.Linear(n_features, width)
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

    def forward(self, features: Tensor) -> Tensor:
        """Score pairs.

        Args:
            features: (P, F).

        Returns:
            (P,) what is added to the ensemble's score.
        """
        inputs = ((features - self.mean) / self.scale).clamp(-LIMIT, LIMIT)
        hidden = self.dropout(gelu(self.first(inputs)))
        hidden = self.dropout(gelu(self.second(hidden)) + hidden)
        made: Tensor = self.last(hidden).squeeze(1)
        return made if self.factor is None else made + self.factor * features[:, self.direct]
