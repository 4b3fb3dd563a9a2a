"""The best spans of a table too large for the maxima of all its groups: block by block.

The maxima of groups take half a byte for each query and label, so a table of hundreds of millions
of labels would leave memory for few queries at a time, and be read again for each few. Here only
the maximum of each span of 128 labels is kept, of one block of labels at a time, and of each query
the best spans so far. All queries are scored against a block before the next: the table is read
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from umpteen.index.groups import GROUPS_PER_SPAN, SPAN, plain_maxima

BYTES_PER_MAXIMUM = 16
"""Of a span and a query: the maximum, and what a selection among them takes beside it."""


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
