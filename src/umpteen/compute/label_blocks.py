"""Any objective over all labels without ever holding the (B, L) scores. No formula of a loss here.

An objective is a small summary of each block of scores, a merge, and a loss from the merged summary
and the positives' scores. So the loss of all labels is one pass over blocks that keeps the
summaries; its gradient with respect to those few numbers is ordinary differentiation; and a second
pass computes each block's scores again and pushes the numbers' gradients through it. Ranks that
hold a part of the labels each exchange the summaries and the positives' scores, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from umpteen.compute.label_stream import LabelStream
from umpteen.compute.precision import at_least_float32
from umpteen.compute.sharding import Shards, all_here
from umpteen.errors import LabelMismatch
from umpteen.types import Positives

MEMORY_BYTES = 1 << 29
COPIES = 10  # block-sized tensors alive at once, in the worst objective's backward; a test measures
LABEL_COPIES = 3  # the block's own labels: cast, and their gradient twice


def streamed_loss(
    objective: Any,
    reduction: Callable[[Positives, int], Tensor],
    queries: Tensor,
    labels: Tensor,
    positives: Positives,
    *,
    scale: Tensor | float = 1.0,
    ignored: Any = None,
    forward: float = 1.0,
    block_size: int | None = None,
    memory_bytes: int | None = None,
    shards: Shards | None = None,
) -> Tensor:
    """The loss of queries against all labels, in bounded memory, differentiable.

    Equals, up to rounding, ``forward * block_loss(objective, reduction, scores, positives) +
    (1 - forward) * block_loss(objective, reduction, scores.T, positives.transposed())`` for
    ``scores = scale * queries @ labels.T`` with -inf at the ignored pairs, and has its gradients.
    Scores are float32 at least. Out of memory halves the block and does the pass again.

    With ``shards`` each rank gives the labels it holds and all else in whole, the same on every
    rank. The loss is that of all labels, on every rank; the gradients are those by this rank's
    labels, and for queries and scale this rank's part of them: their sum over ranks is the whole
    (``Ranks.gather_rows`` adds up for the queries that it gathered).

    Args:
        objective: An ``objectives.base.Objective``.
        reduction: How a row's positives are weighed; a random one draws as it would for the whole.
        queries: (B, D).
        labels: (L, D), whatever made them; gradients arrive in the same type.
        positives: Pairs (query, label) over all labels; as NumPy arrays they cost no wait for the
            device, as tensors on one they do.
        scale: A multiplier of the scores, one over the temperature; may need a gradient.
        ignored: (M, 2) pairs (query, label) that count neither way, or None.
        forward: Weight of queries choosing among labels; labels choosing among queries have the
            rest. Seen from labels a block is whole, so that direction costs no further pass.
        block_size: Labels at once; from the memory if None.
        memory_bytes: What a block may take, 512 MiB if None: the block has
            memory / (bytes of a number * (10 B + 3 D)) labels. Inputs, their gradients and the
            P positives' scores come on top.
        shards: Which labels each rank holds, where there are several.

    Returns:
        A scalar; it can be differentiated once.

    Raises:
        LabelMismatch: If a pair names a label or a query that is not there, or a rank's vectors
            are not those of its labels.
        UmpteenError: If not even one label at a time fits the memory.
    """
    dtype = torch.promote_types(at_least_float32(queries).dtype, at_least_float32(labels).dtype)
    queries = queries.to(dtype) * scale
    if block_size is None:
        block_size = fitting_block(len(queries), labels.shape[1], dtype, memory_bytes)
    shards = all_here(len(labels)) if shards is None else shards
    if len(labels) != len(shards.own):
        raise LabelMismatch(
            f"rank {shards.ranks.rank} gives {len(labels)} label vectors and holds "
            f"{len(shards.own)} labels; they must be the same"
        )
    stream = LabelStream(objective, reduction, queries, shards, positives, ignored, forward)
    stream.size = max(1, min(block_size, len(labels)))
    result: Tensor = _StreamedLoss.apply(queries, labels, stream)
    return result


def fitting_block(n_queries: int, dim: int, dtype: torch.dtype, memory_bytes: int | None) -> int:
    """How many labels at once stay within the memory; see ``streamed_loss``."""
    memory = MEMORY_BYTES if memory_bytes is None else memory_bytes
    size = memory // (dtype.itemsize * (COPIES * n_queries + LABEL_COPIES * dim))
    return max(1, size - size % 64 if size > 64 else size)  # matrix products like round numbers


class _StreamedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, labels: Tensor, stream: LabelStream) -> Tensor:
        ctx.save_for_backward(queries, labels)
        ctx.stream = stream
        return stream.collect(queries, labels)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, labels = ctx.saved_tensors
        stream, needs = ctx.stream, ctx.needs_input_grad[:2]
        found = stream.retrying(lambda: stream.replay(queries, labels, gradient, needs))
        return (*found, None)
