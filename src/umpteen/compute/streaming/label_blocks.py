"""Any objective over all labels without ever holding the (B, L) scores. No formula of a loss here.

An objective is a small summary of each block of scores, a merge, and a loss from the merged summary
and the positives' scores. So the loss of all labels is one pass over blocks that keeps the
summaries; its gradient with respect to those few numbers is ordinary differentiation; and a second
pass computes each block's scores again and pushes the numbers' gradients through it. Ranks that
hold a part of the labels each exchange the summaries and the positives' scores, and nothing else.

With precision bf16, and for bfloat16 labels on a GPU anyway, the factors of the products (queries,
labels, and the gradient by scores) are rounded to bfloat16, and all sums stay float32. Rounding
moves a factor by at most 2^-9 of itself, and the D errors of a score are independent: for unit
vectors a cosine is off by about 0.002 / sqrt(D), 1e-4 at D = 768, where a score rounded to bfloat16
would be off by 0.004. A gradient has relative errors of some 2^-9 = 0.2% from its own factors, and
what scores that are off by e bring: a factor exp(e).

A block has memory / (bytes of a number * (10 B + 3 D)) labels, or more where the objective's
``summary`` says how to do with fewer copies. Inputs, their gradients and the P positives' scores
come on top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.distributed.sharding import Shards, all_here
from umpteen.compute.streaming.explicit_gradients import ExplicitGradients, summary_functions
from umpteen.compute.streaming.label_passes import LabelPasses
from umpteen.compute.streaming.label_products import (
    ApplyBlock,
    Fresh,
    factor_type,
    once,
    write_all,
    write_some,
)
from umpteen.compute.streaming.label_stream import LabelStream
from umpteen.errors import LabelMismatch, UmpteenError
from umpteen.types import Positives

PRECISIONS = ("fp32", "bf16")
MEMORY_BYTES = {"cpu": 1 << 29, "cuda": 3 << 29}
"""Large blocks suit a GPU: each takes the host some fifty calls, whatever its size."""
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
    precision: str = "fp32",
    fresh: Fresh | None = None,
) -> Tensor:
    """Return the loss of queries against all labels, in bounded memory, differentiable.

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
        labels: (L, D); gradients arrive in the same type.
        positives: Pairs (query, label) over all labels; NumPy arrays do not wait for the device.
        scale: A multiplier of the scores, one over the temperature; may need a gradient.
        ignored: (M, 2) pairs (query, label) that count neither way, or None.
        forward: Weight of queries choosing among labels; labels among queries have the rest.
        block_size: Labels at once; from the memory if None.
        memory_bytes: What a block may take, 512 MiB on a CPU and 1.5 GiB on a GPU if None.
        shards: Which labels each rank holds, where there are several.
        precision: Of the products' factors, ``fp32`` (as given, at least float32) or ``bf16``.
        fresh: The labels that get a gradient, where the others are constants.

    Returns:
        A scalar; it can be differentiated once.

    Raises:
        LabelMismatch: If a pair names no label or query, or a rank's vectors are of other labels.
        UmpteenError: If not even one label at a time fits the memory.
    """
    scaled, stream = _prepare(
        objective, reduction, queries, labels, positives, scale, ignored, forward,
        block_size, memory_bytes, shards, precision,
    )  # fmt: skip
    vectors, rows = (None, None) if fresh is None else (fresh.vectors, fresh.rows)
    labels = labels if fresh is None else labels.detach()
    result: Tensor = _StreamedLoss.apply(scaled, labels, vectors, stream, rows)
    return result


def streamed_update(
    objective: Any,
    reduction: Callable[[Positives, int], Tensor],
    queries: Tensor,
    labels: Tensor,
    positives: Positives,
    apply_block: ApplyBlock,
    *,
    weight: float = 1.0,
    scale: Tensor | float = 1.0,
    ignored: Any = None,
    forward: float = 1.0,
    block_size: int | None = None,
    memory_bytes: int | None = None,
    shards: Shards | None = None,
    precision: str = "fp32",
) -> Tensor:
    """Compute ``weight * streamed_loss(...)`` and update its labels block by block.

    No (L, D) gradient is stored.

    The gradient by each block of labels goes to ``apply_block`` when the block is done, before this
    returns; its sum by queries and scale comes with backward, as from ``streamed_loss``. An
    objective whose loss is linear in its summary (``bce``) is done in a single pass.

    Args:
        objective: As for ``streamed_loss``, like all that is not named here.
        reduction: Likewise.
        queries: (B, D).
        labels: (L, D); no gradient goes there by backward.
        positives: Pairs (query, label) over all labels.
        apply_block: Gets the rows of a block and the gradient of ``weight * loss`` by them, and
            may change these label vectors; ``label_products.descend`` is one.
        weight: Of this loss in what is minimised; the result has it already.
        scale: A multiplier of the scores.
        ignored: (M, 2) pairs that count neither way, or None.
        forward: Weight of queries choosing among labels.
        block_size: Labels at once; from the memory if None.
        memory_bytes: What a block may take; ``apply_block`` is not counted.
        shards: Which labels each rank holds.
        precision: Of the products' factors.

    Returns:
        A scalar; by queries and scale it can be differentiated.

    Raises:
        LabelMismatch: As ``streamed_loss``.
        UmpteenError: If not even one label fits the memory, or what ``apply_block`` needs does not.
    """
    labels = labels.detach()
    scaled, stream = _prepare(
        objective, reduction, queries, labels, positives, scale, ignored, forward,
        block_size, memory_bytes, shards, precision,
    )  # fmt: skip
    result: Tensor = _StreamedUpdate.apply(scaled, labels, stream, weight, once(apply_block))
    return result


def _prepare(
    objective: Any,
    reduction: Callable[[Positives, int], Tensor],
    queries: Tensor,
    labels: Tensor,
    positives: Positives,
    scale: Tensor | float,
    ignored: Any,
    forward: float,
    block_size: int | None,
    memory_bytes: int | None,
    shards: Shards | None,
    precision: str,
) -> tuple[Tensor, LabelPasses]:
    """Return the scaled queries, and the stream with its block size."""
    if precision not in PRECISIONS:
        raise UmpteenError(
            f"precision {precision!r} is not known; it is one of {', '.join(PRECISIONS)}"
        )
    dtype = torch.promote_types(torch.promote_types(queries.dtype, labels.dtype), torch.float32)
    queries = queries.to(dtype) * scale
    shards = all_here(len(labels)) if shards is None else shards
    if len(labels) != len(shards.own):
        raise LabelMismatch(
            f"rank {shards.ranks.rank} gives {len(labels)} label vectors and holds "
            f"{len(shards.own)} labels; they must be the same"
        )
    factors = factor_type(labels, precision, dtype)
    summary = getattr(objective, "summary", None) if forward == 1.0 else None
    given = objective, reduction, queries, shards, positives, ignored, forward, factors
    if summary is not None:
        functions = summary_functions(summary.function, queries.device, dtype)
        stream: LabelPasses = ExplicitGradients(*given, summary=summary, functions=functions)
        # The block's labels: their gradient, where it is asked for, and the cast ones.
        copies, label_copies = functions.copies, 1 if labels.dtype == factors else 2
    else:
        stream, label_copies = LabelStream(*given), LABEL_COPIES
        copies = getattr(objective, "block_copies", COPIES)
    if block_size is None:
        block_size = fitting_block(
            len(queries), labels.shape[1], dtype, memory_bytes or default_memory(labels.device),
            copies=copies, label_copies=label_copies,
        )  # fmt: skip
    stream.size = max(1, min(block_size, len(labels)))
    return queries, stream


def default_memory(device: torch.device) -> int:
    """Return the default memory of a block."""
    return MEMORY_BYTES["cuda" if device.type == "cuda" else "cpu"]


def fitting_block(
    n_queries: int,
    dim: int,
    dtype: torch.dtype,
    memory_bytes: int,
    *,
    copies: int = COPIES,
    label_copies: int = LABEL_COPIES,
) -> int:
    """Return how many labels at once stay within the memory; see ``streamed_loss``."""
    size = memory_bytes // (dtype.itemsize * (copies * n_queries + label_copies * dim))
    even = 2048 if size > 16384 else 64  # matrix products like round numbers
    return max(1, size - size % even if size > even else size)


class _StreamedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        labels: Tensor,
        fresh: Tensor | None,
        stream: LabelPasses,
        rows: NDArray[np.int64] | None,
    ) -> Tensor:
        ctx.save_for_backward(queries, labels)
        ctx.stream, ctx.rows = stream, rows
        ctx.kind = labels.dtype if fresh is None else fresh.dtype
        return stream.collect(queries, labels)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, labels = ctx.saved_tensors
        by_queries, by_labels, by_fresh = ctx.needs_input_grad[:3]
        whole = some = keep = None
        if by_labels:
            whole = torch.empty_like(labels)
            keep = write_all(whole)
        elif by_fresh:
            some = labels.new_empty((len(ctx.rows), labels.shape[1]), dtype=ctx.kind)
            keep = write_some(some, ctx.rows)
        by_query = ctx.stream.replay(queries, labels, gradient, by_queries, keep)
        return by_query, whole, some, None, None


class _StreamedUpdate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        labels: Tensor,
        stream: LabelPasses,
        weight: float,
        apply_block: ApplyBlock,
    ) -> Tensor:
        factor = torch.full((), weight, dtype=queries.dtype, device=queries.device)
        wanted = ctx.needs_input_grad[0]
        loss, by_queries = stream.update(queries, labels, factor, wanted, apply_block)
        if by_queries is not None:
            ctx.save_for_backward(by_queries)
        return loss * factor

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (by_queries,) = ctx.saved_tensors
        return by_queries * gradient, None, None, None, None
