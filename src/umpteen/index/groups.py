"""Labels in small groups, and each group's highest score: the first pass of a search, plainly.

A span is 128 neighbouring labels; a group is every 16th label of a span, eight in all. Neighbours
in a group are 16 columns apart because a matrix unit leaves such columns of one score tile to the
same thread, which then takes their maximum without asking another. ``kernels.py`` does what
``plain_maxima`` does without ever writing a score.
"""

from __future__ import annotations

import torch

SPAN = 128
GROUP = 8
GROUPS_PER_SPAN = SPAN // GROUP


def members(groups: torch.Tensor) -> torch.Tensor:
    """Return the label rows of groups: (...,) to (..., GROUP), rising.

    Example:
        >>> members(torch.tensor([1, 16])).tolist()[1]
        [128, 144, 160, 176, 192, 208, 224, 240]
    """
    first = groups // GROUPS_PER_SPAN * SPAN + groups % GROUPS_PER_SPAN
    steps = torch.arange(0, SPAN, GROUPS_PER_SPAN, device=groups.device)
    return first[..., None] + steps


def group_and_place(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the group each label row is in, and its place there."""
    groups = rows // SPAN * GROUPS_PER_SPAN + rows % GROUPS_PER_SPAN
    return groups, rows % SPAN // GROUPS_PER_SPAN


def plain_maxima(
    queries: torch.Tensor, labels: torch.Tensor, bias: torch.Tensor, *, memory_bytes: int = 1 << 28
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the highest score of each group and of each span.

    Args:
        queries: (B, D), of the labels' dtype.
        labels: (C, D) float32, bfloat16 or float8; C is a multiple of a span.
        bias: (C,) added to a label's scores; -inf for an excluded one.
        memory_bytes: What the scores of a block of labels may take.

    Returns:
        (B, C / GROUP) and (B, C / SPAN), float32.
    """
    block = max(1, memory_bytes // (4 * SPAN * max(1, len(queries)))) * SPAN
    maxima = queries.new_empty((len(queries), len(labels) // GROUP), dtype=torch.float32)
    for first in range(0, len(labels), block):
        scores = _product(queries, labels[first : first + block]) + bias[first : first + block]
        parts = scores.view(len(queries), -1, GROUP, GROUPS_PER_SPAN)
        place = first // GROUP
        maxima[:, place : place + scores.shape[1] // GROUP] = parts.amax(dim=2).flatten(1)
    return maxima, maxima.unflatten(1, (-1, GROUPS_PER_SPAN)).amax(dim=2)


def plain_scores(
    queries: torch.Tensor,
    vectors: torch.Tensor,
    groups: torch.Tensor,
    *,
    memory_bytes: int = 1 << 28,
) -> torch.Tensor:
    """Return the scores of all labels of some groups, summed in float32.

    Args:
        queries: (B, D), of the vectors' dtype.
        vectors: (L, D) float32 or bfloat16.
        groups: (B, W) groups of each query.
        memory_bytes: What the gathered vectors may take.

    Returns:
        (B, W * GROUP) float32; of labels beyond L the score of the last one.
    """
    rows = members(groups).flatten(1).clamp(max=len(vectors) - 1)
    block = max(1, memory_bytes // (4 * vectors.shape[1] * max(1, rows.shape[1])))
    parts = [
        torch.einsum("bd,bcd->bc", some.float(), vectors[theirs].float())
        for some, theirs in zip(queries.split(block), rows.split(block), strict=True)
    ]
    return torch.cat(parts)


def _product(queries: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return (B, C) inner products, summed in float32 whatever the dtype."""
    if queries.is_cuda and queries.dtype == torch.bfloat16:
        scores: torch.Tensor = torch.mm(queries, labels.T, out_dtype=torch.float32)
        return scores
    return queries.float() @ labels.float().T
