"""Parameters cast to the dtype of computation, many in a few launches, some joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, sizes: list[int], *parameters: Tensor) -> Any:
        groups = _split(parameters, sizes)
        ctx.rows = [[len(p) for p in group] for group in groups]
        ctx.like = parameters[0].dtype
        out = [g[0].new_empty(sum(map(len, g)), *g[0].shape[1:], dtype=dtype) for g in groups]
        parts = _parts(out, ctx.rows)
        torch._foreach_copy_(parts, list(parameters))
        return tuple(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        parts = _parts(gradients, ctx.rows)
        out = [torch.empty_like(part, dtype=ctx.like) for part in parts]
        torch._foreach_copy_(out, parts)
        return (None, None, *out)


def cast_weights(groups: Sequence[Sequence[Tensor]], dtype: torch.dtype) -> list[Tensor]:
    """Return each group of parameters as one tensor.

    Equals ``[torch.cat(group).to(dtype) for group in groups]``.
    """
    parameters = [p for group in groups for p in group]
    return list(_Cast.apply(dtype, [len(group) for group in groups], *parameters))


def _parts(joined: Sequence[Tensor], rows: list[list[int]]) -> list[Tensor]:
    """Return each tensor cut where its parameters meet; most are of one."""
    pairs = zip(joined, rows, strict=True)
    return list(chain(*([j] if len(own) == 1 else j.split(own) for j, own in pairs)))


def _split(parameters: Sequence[Tensor], sizes: list[int]) -> list[Sequence[Tensor]]:
    groups, start = [], 0
    for size in sizes:
        groups.append(parameters[start : start + size])
        start += size
    return groups
