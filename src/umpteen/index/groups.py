"""Labels in small groups, and each group's highest score: the first pass of a search, plainly.

A span is 128 neighbouring labels; a group is every 16th label of a span, eight in all. Neighbours
in a group are 16 columns apart because a matrix unit leaves such columns of one score tile to the
same thread, which then takes their maximum without asking another. ``kernels.py`` does what
``plain_maxima`` does without ever writing a score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

SPAN = 128
GROUP = 8
GROUPS_PER_SPAN = SPAN // GROUP
BYTES_PER_MAXIMUM = 16
"""Of a span and a query: the maximum, and what a selection among them takes beside it."""


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


def plain_span_maxima(queries: Tensor, labels: Tensor, bias: Tensor) -> Tensor:
    """Return the highest score of each span, (B, C / SPAN): the reference of the kernel."""
    return plain_maxima(queries, labels, bias)[1]


def labels_per_block(n_queries: int, memory_bytes: int, multiple: int) -> int:
    """Return how many labels' maxima fit the memory, a multiple of ``multiple``."""
    fit = memory_bytes * SPAN // (BYTES_PER_MAXIMUM * max(1, n_queries))
    return max(1, fit // multiple) * multiple


def best_spans(
    queries: Tensor,
    blocks: Iterable[tuple[int, Tensor, Tensor]],
    width: int,
    span_maxima: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Return the spans with the highest maxima of all blocks.

    Args:
        queries: (B, D), of the labels' dtype.
        blocks: (first label, (C, D) labels, (C,) bias); first label and C are multiples of a span.
        width: How many spans to choose.
        span_maxima: ``plain_span_maxima`` or its kernel.

    Returns:
        (B, W) spans, rising, W at most the width; and (B,) a score that no other span exceeds,
        -inf where there is no other.
    """
    # One more than wanted: its score is the bound on all that are left out.
    values = torch.empty(len(queries), 0, device=queries.device)
    spans = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    for first, labels, bias in blocks:
        maxima = span_maxima(queries, labels, bias)
        here = maxima.topk(min(width + 1, maxima.shape[1]), dim=1, sorted=False)
        del maxima
        values = torch.cat([values, here.values], dim=1)
        spans = torch.cat([spans, here.indices + first // SPAN], dim=1)
        if values.shape[1] > width + 1:
            kept = values.topk(width + 1, dim=1)
            values, spans = kept.values, spans.gather(1, kept.indices)
    values, order = values.sort(dim=1, descending=True)
    spans = spans.gather(1, order)
    left_out = values.new_full((len(values),), -torch.inf)
    if values.shape[1] > width:
        left_out = values[:, width]
    return spans[:, :width].sort(dim=1).values, left_out


def groups_of(spans: Tensor) -> Tensor:
    """Return all groups of some spans: (B, W) to (B, W * GROUPS_PER_SPAN), rising if they are."""
    inner = torch.arange(GROUPS_PER_SPAN, device=spans.device)
    return (spans[:, :, None] * GROUPS_PER_SPAN + inner).flatten(1)
