"""Bias, dropout, residual and layer norm in one pass over the tokens, as Triton kernels."""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from umpteen.compute.kernels.random_bits import drop_threshold, kept

# Of the backward kernel, each with a partial sum: six for each of an H200's 132 multiprocessors,
# which is what 80 registers a thread allow to run at once.
PROGRAMS = 792
Kept = tuple[Tensor, Tensor, Tensor]
"""What backward needs: the sum (N, width), and mean and inverse deviation of its rows (N,)."""


@triton.jit(do_not_specialize=["count"])  # which differs from batch to batch
def _forward(
    values, bias, residual, weight, shift, out, total,
    means, inverses, seed, count, threshold, grow, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    BIAS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    wide = columns < WIDTH
    inside = (rows < count)[:, None] & wide[None, :]
    places = rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
    x = tl.load(values + places, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        x += tl.load(bias + columns, mask=wide, other=0.0).to(tl.float32)[None, :]
    if DROP:
        x = tl.where(kept(tl.load(seed), rows, ROWS, BLOCK, threshold), x * grow, 0.0)
    x += tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    kind = total.dtype.element_ty
    x = x.to(kind).to(tl.float32)  # backward sees the rounded sum, so forward does too
    mean = tl.sum(tl.where(inside, x, 0.0), axis=1) / WIDTH
    apart = tl.where(inside, x - mean[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(apart * apart, axis=1) / WIDTH + eps)
    w = tl.load(weight + columns, mask=wide, other=0.0).to(tl.float32)
    b = tl.load(shift + columns, mask=wide, other=0.0).to(tl.float32)
    y = apart * inverse[:, None] * w[None, :] + b[None, :]
    tl.store(out + places, y.to(out.dtype.element_ty), mask=inside)
    tl.store(total + places, x.to(kind), mask=inside)
    tl.store(means + rows, mean, mask=rows < count)
    tl.store(inverses + rows, inverse, mask=rows < count)


@triton.jit(do_not_specialize=["count"])
def _backward(
    gradient, weight, total, means, inverses, to_values,
    to_residual, partial, seed, count, threshold, grow,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    BIAS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    wide = columns < WIDTH
    w = tl.load(weight + columns, mask=wide, other=0.0).to(tl.float32)
    to_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    to_shift = tl.zeros((ROWS, BLOCK), tl.float32)
    to_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(program * ROWS, count, tl.num_programs(0) * ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & wide[None, :]
        places = rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
        above = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(means + rows, mask=rows < count, other=0.0)
        inverse = tl.load(inverses + rows, mask=rows < count, other=0.0)
        unit = tl.where(inside, (x - mean[:, None]) * inverse[:, None], 0.0)
        to_weight += above * unit
        to_shift += above
        to_unit = above * w[None, :]
        along = tl.sum(to_unit * unit, axis=1) / WIDTH
        level = tl.sum(to_unit, axis=1) / WIDTH
        result = (to_unit - level[:, None] - unit * along[:, None]) * inverse[:, None]
        tl.store(to_residual + places, result.to(to_residual.dtype.element_ty), mask=inside)
        if DROP:
            keep = kept(tl.load(seed), rows, ROWS, BLOCK, threshold)
            result = tl.where(keep, result * grow, 0.0)
            tl.store(to_values + places, result.to(to_values.dtype.element_ty), mask=inside)
        if BIAS:
            to_bias += tl.where(inside, result, 0.0)
    into = partial + program * (3 * WIDTH) + columns
    tl.store(into, tl.sum(to_weight, axis=0), mask=wide)
    tl.store(into + WIDTH, tl.sum(to_shift, axis=0), mask=wide)
    tl.store(into + 2 * WIDTH, tl.sum(to_bias, axis=0), mask=wide)


@triton.jit(do_not_specialize=["count"])
def _again(
    total, means, inverses, weight, shift, out, count,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    wide = columns < WIDTH
    inside = (rows < count)[:, None] & wide[None, :]
    places = rows[:, None].to(tl.int64) * WIDTH + columns[None, :]
    x = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
    mean = tl.load(means + rows, mask=rows < count, other=0.0)
    inverse = tl.load(inverses + rows, mask=rows < count, other=0.0)
    w = tl.load(weight + columns, mask=wide, other=0.0).to(tl.float32)
    b = tl.load(shift + columns, mask=wide, other=0.0).to(tl.float32)
    y = (x - mean[:, None]) * inverse[:, None] * w[None, :] + b[None, :]
    tl.store(out + places, y.to(out.dtype.element_ty), mask=inside)


@cache
def _shape(width: int, elements: int) -> dict[str, int]:
    """Return the constants of a kernel that holds so many elements at once.

    Or one row if that is more.
    """
    block = max(16, triton.next_power_of_2(width))
    return {"WIDTH": width, "BLOCK": block, "ROWS": max(1, elements // block)}


def norm_forward(
    values: Tensor, bias: Tensor | None, residual: Tensor, weight: Tensor, shift: Tensor, *,
    eps: float, rate: float, seed: Tensor | None, dtype: torch.dtype,
) -> tuple[Tensor, Kept]:  # fmt: skip
    """Return the forward pass of ``add_norm`` without a graph.

    What ``norm_backward`` needs of it.
    """
    count, width = values.shape
    out = torch.empty(count, width, dtype=dtype, device=values.device)
    total = torch.empty_like(out)
    mean = torch.empty(count, dtype=torch.float32, device=values.device)
    inverse = torch.empty_like(mean)
    shape = _shape(width, 2048)
    unused = weight
    _forward[(-(-count // shape["ROWS"]),)](
        values, unused if bias is None else bias, residual, weight, shift, out, total,
        mean, inverse, unused if seed is None else seed,
        count, drop_threshold(rate), 1.0 / (1.0 - rate), eps,
        BIAS=bias is not None, DROP=rate > 0, num_warps=4, **shape,
    )  # fmt: skip
    return out, (total, mean, inverse)


def norm_again(kept_back: Kept, weight: Tensor, shift: Tensor) -> Tensor:
    """Return the result of ``norm_forward`` once more, from what it kept."""
    total, means, inverses = kept_back
    count, width = total.shape
    shape = _shape(width, 2048)
    out = torch.empty_like(total)
    _again[(-(-count // shape["ROWS"]),)](
        total, means, inverses, weight, shift, out, count, num_warps=4, **shape
    )
    return out


def norm_backward(
    gradient: Tensor, weight: Tensor, kept_back: Kept, *,
    rate: float, seed: Tensor | None, dtype: torch.dtype, has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of values and residual in the dtype asked for.

    Of weight, shift, bias in float32.

    Without dropout the first two are one tensor.
    """
    total, means, inverses = kept_back
    count, width = total.shape
    shape = _shape(width, 1024)
    programs = min(PROGRAMS, -(-count // shape["ROWS"]))
    to_residual = torch.empty(count, width, dtype=dtype, device=total.device)
    to_values = torch.empty_like(to_residual) if rate > 0 else to_residual
    partial = torch.empty(programs, 3, width, dtype=torch.float32, device=total.device)
    _backward[(programs,)](
        gradient.contiguous(), weight, total, means, inverses, to_values, to_residual, partial,
        weight if seed is None else seed, count, drop_threshold(rate), 1.0 / (1.0 - rate),
        BIAS=has_bias, DROP=rate > 0, num_warps=4, **shape,
    )  # fmt: skip
    to_weight, to_shift, to_bias = partial.sum(dim=0)
    return to_values, to_residual, to_weight, to_shift, to_bias


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, bias: Tensor | None, residual: Tensor, weight: Tensor,
        shift: Tensor, eps: float, rate: float, seed: Tensor | None, dtype: torch.dtype,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        out, kept_back = norm_forward(
            values, bias, residual, weight, shift, eps=eps, rate=rate, seed=seed, dtype=dtype
        )
        ctx.save_for_backward(weight, *kept_back, *([] if seed is None else [seed]))
        ctx.rate, ctx.has_bias, ctx.dtype = rate, bias is not None, values.dtype
        ctx.mark_non_differentiable(*kept_back)
        ctx.set_materialize_grads(False)
        return out, *kept_back

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 9
        weight, total, means, inverses, *seeds = ctx.saved_tensors
        to_values, to_residual, to_weight, to_shift, to_bias = norm_backward(
            gradient, weight, (total, means, inverses), rate=ctx.rate,
            seed=seeds[0] if seeds else None, dtype=ctx.dtype, has_bias=ctx.has_bias,
        )  # fmt: skip
        bias = to_bias if ctx.has_bias else None
        return to_values, bias, to_residual, to_weight, to_shift, None, None, None, None


def add_norm(
    values: Tensor, bias: Tensor | None, residual: Tensor, weight: Tensor, shift: Tensor, *,
    eps: float, rate: float = 0.0, seed: Tensor | None = None, dtype: torch.dtype,
) -> tuple[Tensor, Kept]:  # fmt: skip
    """Compute the layer norm of a residual sum.

    Equals ``layer_norm((dropout(values + bias) + residual).to(dtype), ...).to(dtype)``, reckoned in
    float32.

    Args:
        values: (N, width), contiguous.
        bias: (width,) or None.
        residual: (N, width) of the same dtype as values, contiguous.
        weight: (width,) of the norm, float32.
        shift: (width,) its bias, float32.
        eps: Of the norm.
        rate: Share of values + bias that is dropped.
        seed: (1,) int64 on the device, with a rate above 0. The same seed drops the same.
        dtype: Of the sum that is kept for backward, and of the result.

    Returns:
        (N, width), and what backward keeps, from which ``norm_again`` recomputes it.
    """
    if rate == 0:
        seed = None
    arguments = (values, bias, residual, weight, shift, eps, rate, seed, dtype)
    out, total, means, inverses = _AddNorm.apply(*arguments)
    return out, (total, means, inverses)
