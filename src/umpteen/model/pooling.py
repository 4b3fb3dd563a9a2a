"""From token vectors to one vector per text."""

from __future__ import annotations

import torch
from torch import Tensor


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
