"""Pooling of token vectors, and the layers of an imported encoder after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "sigmoid": torch.sigmoid,
    "silu": nn.functional.silu,
}


@dataclass(frozen=True)
class LayerSpec:
    """A dense layer with its activation, or the normalization to length one."""

    kind: str
    """``dense`` or ``normalize``."""
    weight: Tensor | None = None
    """(out, in)."""
    bias: Tensor | None = None
    activation: str = "identity"


class PoolingLayers(nn.Module):
    """Layers from the pooled vector of a text to its final one."""

    def __init__(self, layers: Sequence[LayerSpec], dim: int) -> None:
        super().__init__()
        self.kinds = [layer.kind for layer in layers]
        self.activations = [layer.activation for layer in layers]
        self.dim = dim
        for number, layer in enumerate(layers):
            if layer.weight is not None:
                setattr(self, f"weight_{number}", nn.Parameter(layer.weight.clone()))
                self.dim = layer.weight.shape[0]
            if layer.bias is not None:
                setattr(self, f"bias_{number}", nn.Parameter(layer.bias.float().clone()))

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (B, pooled dim) to (B, dim)."""
        for number, (kind, activation) in enumerate(zip(self.kinds, self.activations, strict=True)):
            if kind == "normalize":
                vectors = normalize(vectors, dim=-1)
            else:
                weight, bias = (
                    getattr(self, f"weight_{number}"),
                    getattr(self, f"bias_{number}", None),
                )
                vectors = ACTIVATIONS[activation](linear(vectors, weight, bias))
        return vectors

    def describe(self) -> list[dict[str, Any]]:
        """Return what ``PoolingLayers.of`` needs beside the weights, as JSON values."""
        return [
            {"kind": kind, "activation": activation}
            for kind, activation in zip(self.kinds, self.activations, strict=True)
        ]

    @classmethod
    def of(
        cls, described: Sequence[dict[str, Any]], tensors: dict[str, Tensor], dim: int
    ) -> PoolingLayers:
        """Return the layers that ``describe`` and ``state_dict`` came from."""
        layers = [
            LayerSpec(
                each["kind"],
                tensors.get(f"weight_{number}"),
                tensors.get(f"bias_{number}"),
                each["activation"],
            )
            for number, each in enumerate(described)
        ]
        return cls(layers, dim)


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over real tokens: (B, T, D) and (B, T) to (B, D)."""
    weights = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def first(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the first token's vector."""
    return hidden[:, 0]


def last(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the last real token's vector."""
    places = mask.sum(dim=1).clamp(min=1) - 1
    return hidden[torch.arange(len(hidden), device=hidden.device), places]


POOLINGS = {"mean": mean, "first": first, "last": last}
