"""From token vectors to one vector per text."""

from __future__ import annotations

from torch import Tensor


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over real tokens: (B, T, D) and (B, T) to (B, D)."""
    weights = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def first(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the first token's vector."""
    return hidden[:, 0]


POOLINGS = {"mean": mean, "first": first}
