"""A transformer's feed-forward block with its norm: what is cheap is made again in backward.

Between the two matrix products lies the widest tensor of a layer. Only what goes into the
activation is kept; backward makes the activation again in the pass that needs its gradient anyway,
and sums the bias gradient in the same pass. The block's input is made again from what the norm
before it keeps.
"""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import gelu

from umpteen.compute.fused_norm import Kept, norm_again, norm_backward, norm_forward

ROWS, COLUMNS, STRIPES = 8, 128, 128


@triton.jit(do_not_specialize=["count"])  # which differs from batch to batch
def _gelu_backward(
    before, gradient, after, partial, count, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    stripe = tl.program_id(1)
    wide = columns < width
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(stripe * ROWS, count, tl.num_programs(1) * ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & wide[None, :]
        places = rows[:, None].to(tl.int64) * width + columns[None, :]
        x = tl.load(before + places, mask=inside, other=0.0).to(tl.float32)
        above = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        share = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        result = above * (share + x * density)
        sums += result
        tl.store(after + places, (x * share).to(after.dtype.element_ty), mask=inside)
        tl.store(gradient + places, result.to(gradient.dtype.element_ty), mask=inside)
    tl.store(partial + stripe * width + columns, tl.sum(sums, axis=0), mask=wide)


def gelu_backward_(before: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Turn the gradient of ``gelu(before)`` into that of ``before``, in place.

    Args:
        before: (N, width), contiguous.
        gradient: (N, width), contiguous; overwritten.

    Returns:
        ``gelu(before)`` (N, width), and the gradient's sum over rows (width,) in float32.
    """
    count, width = before.shape
    after = torch.empty_like(before)
    stripes = min(STRIPES, triton.cdiv(count, ROWS))
    partial = torch.empty(stripes, width, dtype=torch.float32, device=before.device)
    _gelu_backward[(triton.cdiv(width, COLUMNS), stripes)](
        before, gradient, after, partial, count, width, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4
    )
    return after, partial.sum(dim=0)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor,
        weight: Tensor, shift: Tensor, eps: float, rate: float, seed: Tensor | None,
        total: Tensor, means: Tensor, inverses: Tensor, first_weight: Tensor, first_shift: Tensor,
    ) -> Tensor:  # fmt: skip
        before = torch.addmm(up_bias, x, up.T)
        out, kept_back = norm_forward(
            gelu(before) @ down.T, down_bias, x, weight, shift,
            eps=eps, rate=rate, seed=seed, dtype=x.dtype,
        )  # fmt: skip
        seeds = [] if seed is None else [seed]
        made_of = (total, means, inverses, first_weight, first_shift)
        ctx.save_for_backward(*made_of, up, down, weight, before, *kept_back, *seeds)
        ctx.rate = rate
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        total, means, inverses, first_weight, first_shift, *saved = ctx.saved_tensors
        up, down, weight, before, *saved = saved
        kept_back, seeds = (saved[0], saved[1], saved[2]), saved[3:]
        to_values, to_x, to_weight, to_shift, to_down_bias = norm_backward(
            gradient, weight, kept_back, rate=ctx.rate,
            seed=seeds[0] if seeds else None, dtype=up.dtype, has_bias=True,
        )  # fmt: skip
        to_before = to_values @ down
        after, to_up_bias = gelu_backward_(before, to_before)
        to_down = to_values.T @ after
        to_up = to_before.T @ norm_again((total, means, inverses), first_weight, first_shift)
        # Last: without dropout to_values is this same tensor.
        to_x.addmm_(to_before, up)
        up_bias = to_up_bias.to(up.dtype)
        gradients = (to_x, to_up, up_bias, to_down, to_down_bias, to_weight, to_shift)
        return gradients + (None,) * 8


def feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, weight: Tensor,
    shift: Tensor, *, made_of: tuple[Kept, Tensor, Tensor], eps: float, rate: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The second half of a transformer's layer.

    Equals ``layer_norm(x + dropout(linear(gelu(linear(x, up, up_bias)), down, down_bias)))``, the
    norm reckoned in float32.

    Args:
        x: (N, width), contiguous.
        up: (inner, width) of x's dtype.
        up_bias: (inner,) of x's dtype.
        down: (width, inner) of x's dtype.
        down_bias: (width,) float32.
        weight: (width,) of the norm, float32.
        shift: (width,) its bias, float32.
        made_of: How to make x again, which is not kept: what the norm before this block kept, its
            weight and its bias.
        eps: Of the norm.
        rate: Of the dropout.
        seed: (1,) int64 on the device, with a rate above 0. The same seed drops the same.

    Returns:
        (N, width) in x's dtype.
    """
    if rate == 0:
        seed = None
    kept_back, first_weight, first_shift = made_of
    arguments = (x, up, up_bias, down, down_bias, weight, shift, eps, rate, seed)
    out: Tensor = _FeedForward.apply(*arguments, *kept_back, first_weight, first_shift)
    return out
