"""A projection from unlabelled texts: center and whiten an encoder's vectors.

Vectors of texts differ from vectors of label names by more than their meaning: both have a mean of
their own, and a few directions hold most of the variance. Without training, some labels are then
near to every text (hubs). Each side is moved to its own mean, and all directions are scaled to a
similar variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

MEAN_PRIOR = 5.0
"""Vectors of value zero that a mean is shrunk with."""
RIDGE = 1.0
"""Added to the variance of each direction, relative to the mean variance."""
ENTRY = 0.2
"""Root mean square of projected entries: small enough for tanh to be nearly linear."""


@dataclass(frozen=True)
class Whitening:
    """What turns encoded texts and labels into vectors to compare."""

    matrix: Tensor
    """(D, D)."""
    text_mean: Tensor
    """(D,) of texts."""
    label_mean: Tensor
    """(D,) of label names."""

    @classmethod
    def fit(cls, labels: Tensor, texts: Tensor | None = None) -> Whitening:
        """Estimate means and variances.

        Args:
            labels: (L, D) encoded label names.
            texts: (N, D) encoded texts; the labels are used if None.
        """
        labels = labels.double()
        label_mean = _mean(labels)
        parts = [(labels, label_mean)]
        text_mean = label_mean
        if texts is not None and len(texts):
            own = texts.double()
            # Few texts say little about the mean of all: the labels' mean counts as well.
            total = own.sum(dim=0) + MEAN_PRIOR * label_mean
            text_mean = total / (len(own) + MEAN_PRIOR)
            parts.append((own, text_mean))
        width = labels.shape[1]
        covariance = sum(((x - mean).T @ (x - mean)) / len(x) for x, mean in parts) / len(parts)
        assert isinstance(covariance, Tensor)
        n = sum(len(x) for x, _ in parts)
        level = covariance.diagonal().mean().clamp_min(1e-12)
        eye = torch.eye(width, dtype=torch.float64, device=labels.device)
        covariance = (n * covariance + width * level * eye) / (n + width)
        values, directions = torch.linalg.eigh(covariance)
        scales = (values.clamp_min(0.0) + RIDGE * level).rsqrt()
        matrix = (directions * scales) @ directions.T
        entries = torch.cat([(x - mean) @ matrix for x, mean in parts]).square().mean().sqrt()
        return cls(matrix * (ENTRY / entries.clamp_min(1e-12)), text_mean, label_mean)

    def set_(self, linear: nn.Linear, *, for_labels: bool = False) -> None:
        """Write the projection into the linear layer of a head.

        Args:
            linear: (D, D); the head applies tanh and scales to length one.
            for_labels: Center label names instead of texts.
        """
        mean = self.label_mean if for_labels else self.text_mean
        with torch.no_grad():
            linear.weight.copy_(self.matrix.T)
            linear.bias.copy_(-(mean @ self.matrix))


def _mean(vectors: Tensor) -> Tensor:
    return vectors.sum(dim=0) / (len(vectors) + MEAN_PRIOR)
