"""The mean vector of each packed text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _TextMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, texts: Tensor, offsets: Tensor, shares: Tensor, fused: bool
    ) -> Tensor:
        ctx.save_for_backward(texts, shares)
        ctx.dtype = hidden.dtype
        if fused:
            from umpteen.compute.kernels.text_sum import text_sum

            return text_sum(hidden.contiguous(), offsets) * shares[:, None]
        result = torch.zeros(len(shares), hidden.shape[1], dtype=shares.dtype, device=hidden.device)
        return result.index_add_(0, texts, hidden.to(shares.dtype)) * shares[:, None]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        texts, shares = ctx.saved_tensors
        result = (gradient * shares[:, None]).to(ctx.dtype).index_select(0, texts)
        return result, None, None, None, None


def text_mean(
    hidden: Tensor, texts: Tensor, offsets: Tensor, shares: Tensor, *, fused: bool
) -> Tensor:
    """Return the mean of each text's token vectors.

    Equals ``torch.stack([part.mean(dim=0) for part in hidden.split(lengths)])``.

    Args:
        hidden: (N, width) vectors of packed tokens.
        texts: (N,) int32, which text a token belongs to.
        offsets: (M + 1,) where each text starts.
        shares: (M,) one over each text's tokens, in the dtype to sum in.
        fused: Whether to sum with a Triton kernel, text by text, which repeats to the bit; torch's
            own sum does not on a GPU.

    Returns:
        (M, width) in the dtype of shares.
    """
    means: Tensor = _TextMean.apply(hidden, texts, offsets, shares, fused)
    return means
