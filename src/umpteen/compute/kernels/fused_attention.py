"""A transformer's attention block with its projections and norm: little is kept for backward.

Kept are queries, keys and values, and the sum before the norm. Backward runs the attention once
more for its context, and makes the block's input again from what the norm before it keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from umpteen.compute.kernels.fused_norm import Kept, norm_again, norm_backward, norm_forward
from umpteen.compute.kernels.tile_attention import attention_backward, attention_forward

MadeOf = tuple[Kept, Tensor, Tensor]
"""What a norm kept, its weight and its bias: from these ``norm_again`` makes its result."""


@dataclass(frozen=True)
class Texts:
    """Who attends to whom; see ``tile_attention``. Every token lies in a tile."""

    texts: Tensor
    tiles: dict[int, Tensor]
    heads: int


@dataclass(frozen=True)
class Dropouts:
    """How much is dropped of the attention's shares, and of what the block adds; by which seeds."""

    attention_rate: float = 0.0
    rate: float = 0.0
    attention_seed: Tensor | None = None
    seed: Tensor | None = None


class _AttentionBlock(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, weight_bias: Tensor, output: Tensor,
        output_bias: Tensor, norm_weight: Tensor, norm_shift: Tensor, eps: float, who: Texts,
        drop: Dropouts, *made_of: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        fused = torch.addmm(weight_bias, x, weight.T)
        context = _attended(fused, who, drop)
        out, kept_back = norm_forward(
            context @ output.T, output_bias, x, norm_weight, norm_shift,
            eps=eps, rate=drop.rate, seed=drop.seed, dtype=x.dtype,
        )  # fmt: skip
        ctx.save_for_backward(fused, weight, output, norm_weight, *kept_back, *(made_of or [x]))
        ctx.who, ctx.drop, ctx.made = who, drop, len(made_of)
        ctx.mark_non_differentiable(*kept_back)
        ctx.set_materialize_grads(False)
        return out, *kept_back

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        nothing = (None,) * (3 + ctx.made)
        if gradient is None:
            return (None,) * 7 + nothing
        fused, weight, output, norm_weight, *saved = ctx.saved_tensors
        who, drop = ctx.who, ctx.drop
        to_values, to_x, to_weight, to_shift, to_output_bias = norm_backward(
            gradient, norm_weight, (saved[0], saved[1], saved[2]), rate=drop.rate, seed=drop.seed,
            dtype=output.dtype, has_bias=True,
        )  # fmt: skip
        to_output = to_values.T @ _attended(fused, who, drop)
        to_fused = attention_backward(
            to_values @ output, fused, who.texts, who.tiles,
            heads=who.heads, rate=drop.attention_rate, seed=drop.attention_seed,
        )  # fmt: skip
        x = saved[3]
        if ctx.made:
            x = norm_again((saved[3], saved[4], saved[5]), saved[6], saved[7])
        to_joined, to_joined_bias = to_fused.T @ x, to_fused.sum(dim=0)
        # Last: without dropout to_values is this same tensor.
        to_x.addmm_(to_fused, weight)
        gradients = (to_x, to_joined, to_joined_bias, to_output, to_output_bias, to_weight,
                     to_shift)  # fmt: skip
        return gradients + nothing


def _attended(fused: Tensor, who: Texts, drop: Dropouts) -> Tensor:
    return attention_forward(
        fused, who.texts, who.tiles,
        heads=who.heads, rate=drop.attention_rate, seed=drop.attention_seed,
    )  # fmt: skip


def attention_block(
    x: Tensor, weight: Tensor, weight_bias: Tensor, output: Tensor, output_bias: Tensor,
    norm_weight: Tensor, norm_shift: Tensor, who: Texts, drop: Dropouts, *, eps: float,
    made_of: MadeOf | None = None,
) -> tuple[Tensor, Kept]:  # fmt: skip
    """Return the first half of a transformer's layer.

    Equals ``layer_norm(x + dropout(linear(attention, output, output_bias)))``, the norm reckoned in
    float32, for ``attention = tile_attention(linear(x, weight, weight_bias), ...)``.

    Args:
        x: (N, width), contiguous.
        weight: (3 width, width) of queries, keys and values, of x's dtype.
        weight_bias: (3 width,) of x's dtype.
        output: (width, width) of x's dtype.
        output_bias: (width,) float32.
        norm_weight: (width,) float32.
        norm_shift: (width,) float32.
        who: Who attends to whom.
        drop: What is dropped; a rate above 0 has a seed, (1,) int64 on the device.
        eps: Of the norm.
        made_of: How to make x again, which is then not kept; None to keep it.

    Returns:
        (N, width) in x's dtype, and what its norm keeps, from which ``norm_again`` recomputes it.
    """
    kept_before = () if made_of is None else (*made_of[0], made_of[1], made_of[2])
    out, *kept_here = _AttentionBlock.apply(
        x, weight, weight_bias, output, output_bias, norm_weight, norm_shift, eps, who, drop,
        *kept_before,
    )  # fmt: skip
    return out, (kept_here[0], kept_here[1], kept_here[2])
