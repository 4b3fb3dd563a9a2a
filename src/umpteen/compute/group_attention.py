"""Attention among the tokens of packed texts with torch's own kernels, in groups by length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

# Without cuDNN's attention: a call took some 10 ms of host time, by our reading to plan for a shape
# it had not seen, and batches of ragged texts hardly ever repeat one.
ATTENTION_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Group:
    """Neighbouring texts that attend in one call."""

    tokens: slice
    """Their tokens in the packed sequence."""
    count: int
    """Their number."""
    longest: int
    """Tokens of the longest."""
    spread: Tensor | None = None
    """(count * longest,) which of the group's tokens goes to each padded place; None where all
    texts are equally long, and no place is padded."""
    gather: Tensor | None = None
    """(n,) the padded place of each of the group's tokens."""
    mask: Tensor | None = None
    """(count, 1, 1, longest) bool, where there is a token."""


def equal_groups(offsets: NDArray[Any]) -> list[Group]:
    """Group texts of the same length, without padding. (M + 1,) offsets, sorted."""
    lengths = np.diff(offsets)
    first = np.flatnonzero(np.diff(lengths, prepend=-1))
    bounds = [*first.tolist(), len(lengths)]
    return [
        Group(slice(int(offsets[a]), int(offsets[b])), b - a, int(lengths[a]))
        for a, b in zip(bounds[:-1], bounds[1:], strict=True)
    ]


def padded_group(offsets: NDArray[Any]) -> tuple[slice, int, int, NDArray[Any], NDArray[Any], Any]:
    """Return a group of neighbouring texts of any lengths.

    As NumPy values in the order of Group's fields.

    Args:
        offsets: (count + 1,) where each text starts, in the packed sequence.
    """
    lengths = np.diff(offsets)
    longest = int(lengths.max())
    columns = np.arange(longest)
    mask = columns[None, :] < lengths[:, None]  # (count, longest)
    spread = np.where(mask, (offsets[:-1] - offsets[0])[:, None] + columns[None, :], 0)
    gather = np.flatnonzero(mask)
    tokens = slice(int(offsets[0]), int(offsets[-1]))
    return tokens, len(lengths), longest, spread.ravel(), gather, mask[:, None, None, :]


def group_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    groups: list[Group],
    *,
    heads: int,
    rate: float = 0.0,
    bias: Tensor | None = None,
) -> Tensor:
    """Attend from every token to the tokens of its own text.

    Equals, for the T tokens of each text and each head, with (T, size) queries, keys and values:
    ``dropout(softmax(queries @ keys.T / sqrt(size) + bias[head, :T, :T])) @ values``.

    Args:
        queries: (N, heads * size), as are keys and values.
        keys: What they are compared with.
        values: What is averaged.
        groups: Groups that hold all N tokens, in order.
        heads: Number of heads.
        rate: Share of the attention that is dropped, by torch's own random numbers.
        bias: (heads, T, T) for texts of up to T tokens, added to the scores.

    Returns:
        (N, heads * size).
    """
    parts = []
    with sdpa_kernel(ATTENTION_BACKENDS):
        for group in groups:
            shape = (group.count, group.longest, heads, -1)
            own = [tensor[group.tokens] for tensor in (queries, keys, values)]
            if group.spread is not None:
                own = [tensor[group.spread] for tensor in own]
            q, k, v = (tensor.view(shape).transpose(1, 2) for tensor in own)
            mask = _added(group, bias, queries.dtype)
            context = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)
            context = context.transpose(1, 2).reshape(group.count * group.longest, -1)
            parts.append(context if group.gather is None else context[group.gather])
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _added(group: Group, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if bias is None:
        return group.mask
    own = bias[None, :, : group.longest, : group.longest].to(dtype)
    if group.mask is None:
        return own.expand(group.count, -1, -1, -1)
    return own.masked_fill(~group.mask, float("-inf"))
