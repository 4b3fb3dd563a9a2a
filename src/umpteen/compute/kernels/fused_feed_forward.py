"""A transformer's feed-forward block with its norm: what is cheap is made again in backward.

Between the two matrix products lies the widest tensor of a layer. None of it is kept: backward
makes the block's input again from what the norm before it keeps, what goes into the activation by
one product, and what comes out in the pass that needs its gradient anyway. That pass sums the
gradient of the bias too.
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

from umpteen.compute.kernels.fused_norm import Kept, norm_again, norm_backward, norm_forward

ROWS, COLUMNS, STRIPES = 8, 128, 128
KEEP_INNER = False
"""Whether to keep what goes into the activation after all: a ninth of the layer's products less,
for nearly twice what is kept of it. Turned on to compare."""


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


def gelu_backward_(
    before: Tensor, gradient: Tensor, *, keep: bool = False
) -> tuple[Tensor, Tensor]:
    """Turn the gradient of ``gelu(before)`` into that of ``before``, in place.

    Args:
        before: (N, width), contiguous; overwritten with the result.
        gradient: (N, width), contiguous; overwritten.
        keep: Whether to leave ``before`` as it is.

    Returns:
        ``gelu(before)`` (N, width), and the gradient's sum over rows (width,) in float32.
    """
    count, width = before.shape
    after = torch.empty_like(before) if keep else before
    stripes = min(STRIPES, -(-count // ROWS))
    partial = torch.empty(stripes, width, dtype=torch.float32, device=before.device)
    _gelu_backward[(-(-width // COLUMNS), stripes)](
        before, gradient, after, partial, count, width, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=4
    )
    return after, partial.sum(dim=0)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor,
        weight: Tensor, shift: Tensor, eps: float, rate: float, seed: Tensor | None,
        total: Tensor, means: Tensor, inverses: Tensor, first_weight: Tensor, first_shift: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        before = torch.addmm(up_bias, x, up.T)
        after = gelu(before) if KEEP_INNER else torch.ops.aten.gelu_(before)
        out, kept_back = norm_forward(
            after @ down.T, down_bias, x, weight, shift,
            eps=eps, rate=rate, seed=seed, dtype=x.dtype,
        )  # fmt: skip
        made_of = (total, means, inverses, first_weight, first_shift)
        inner = before if KEEP_INNER else None
        ctx.save_for_backward(*made_of, up, up_bias, down, weight, *kept_back, seed, inner)
        ctx.rate = rate
        ctx.mark_non_differentiable(*kept_back)
        ctx.set_materialize_grads(False)
        return out, *kept_back

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 15
        total, means, inverses, first_weight, first_shift, *saved = ctx.saved_tensors
        up, up_bias, down, weight, *kept_back, seed, inner = saved
        to_values, to_x, to_weight, to_shift, to_down_bias = norm_backward(
            gradient, weight, tuple(kept_back), rate=ctx.rate, seed=seed, dtype=up.dtype,
            has_bias=True,
        )  # fmt: skip
        x = norm_again((total, means, inverses), first_weight, first_shift)
        before = torch.addmm(up_bias, x, up.T) if inner is None else inner
        to_before = to_values @ down
        after, to_up_bias = gelu_backward_(before, to_before, keep=inner is not None)
        to_down = to_values.T @ after
        del before, after
        to_up = to_before.T @ x
        # Last: without dropout to_values is this same tensor.
        to_x.addmm_(to_before, up)
        gradients = (to_x, to_up, to_up_bias.to(up.dtype), to_down, to_down_bias, to_weight,
                     to_shift)  # fmt: skip
        return gradients + (None,) * 8


def feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, weight: Tensor,
    shift: Tensor, *, made_of: tuple[Kept, Tensor, Tensor], eps: float, rate: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[Tensor, Kept]:  # fmt: skip
    """Return the second half of a transformer's layer.

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
        (N, width) in x's dtype, and what its norm keeps, from which ``norm_again`` recomputes it.
    """
    if rate == 0:
        seed = None
    kept_back, first_weight, first_shift = made_of
    arguments = (x, up, up_bias, down, down_bias, weight, shift, eps, rate, seed)
    out, *kept_here = _FeedForward.apply(*arguments, *kept_back, first_weight, first_shift)
    return out, (kept_here[0], kept_here[1], kept_here[2])
