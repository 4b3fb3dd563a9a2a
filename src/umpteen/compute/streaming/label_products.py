"""Products of queries, labels and gradients of scores, in whole precision or from bfloat16 factors.

A product of bfloat16 factors adds up in float32 on every device: on a GPU the matrix units do, and
the CPU multiplies the rounded factors in float32. No loss and no blocks here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.precision import full_precision
from umpteen.compute.streaming.label_pairs import place
from umpteen.errors import UmpteenError

PARTS = 32
"""A sum over labels is cut in so many on a GPU: (B, D) alone has too few tiles to keep it busy."""


@dataclass(frozen=True)
class BlockGradient:
    """The gradient by some label vectors, ``slopes @ queries``, not yet multiplied."""

    slopes: Tensor
    """(C, B) of the loss by the scores."""
    queries: Tensor
    """(B, D), scaled, in the type of the slopes."""

    def dense(self, kind: torch.dtype) -> Tensor:
        """Return (C, D), rounded once."""
        return multiply(self.slopes, self.queries, kind)

    def write_to_(self, values: Tensor) -> None:
        """Assign: ``values = dense``, (C, D)."""
        if values.dtype == self.slopes.dtype:
            with full_precision(values):
                torch.mm(self.slopes, self.queries, out=values)
        else:
            values.copy_(self.dense(values.dtype))

    def add_to_(self, values: Tensor, factor: float = 1.0) -> None:
        """Add: ``values += factor * dense``, (C, D); one product if types agree."""
        if values.dtype == self.slopes.dtype:
            with full_precision(values):
                torch.addmm(values, self.slopes, self.queries, alpha=factor, out=values)
        else:
            values.add_(self.dense(values.dtype), alpha=factor)


ApplyBlock = Callable[[slice, BlockGradient], None]
"""Told of a block of labels, by their rows on this rank, and of its gradient when it is whole; it
may change those label vectors, since nothing reads them afterwards."""


@dataclass(frozen=True)
class Fresh:
    """Some of the labels, whose vectors may have a graph."""

    rows: NDArray[np.int64]
    """(C,) which ones among this rank's, ascending; on the host."""
    vectors: Tensor
    """(C, D), the same numbers as the labels at these rows: the gradient goes here."""


def descend(labels: Tensor, rate: float) -> ApplyBlock:
    """Descend along the gradient of label vectors (L, D).

    ``labels -= rate * gradient``, in place.
    """
    values = labels.detach()

    def apply(rows: slice, gradient: BlockGradient) -> None:
        gradient.add_to_(values[rows], -rate)

    return apply


def write_all(whole: Tensor) -> ApplyBlock:
    """Keep the gradient by every label."""

    def write(rows: slice, gradient: BlockGradient) -> None:
        gradient.write_to_(whole[rows])

    return write


def write_some(values: Tensor, rows: NDArray[np.int64]) -> ApplyBlock:
    """Keep the gradient by the labels at these rows, ascending, and make no other."""
    places = place(rows, values.device)

    def write(block: slice, gradient: BlockGradient) -> None:
        first, last = np.searchsorted(rows, [block.start, block.stop])
        if first < last:
            slopes = gradient.slopes[places[first:last] - block.start]
            BlockGradient(slopes, gradient.queries).write_to_(values[first:last])

    return write


def once(apply_block: ApplyBlock) -> ApplyBlock:
    """Return the same, for which memory that runs out half way is no reason to begin again."""

    def apply(rows: slice, gradient: BlockGradient) -> None:
        try:
            apply_block(rows, gradient)
        except torch.OutOfMemoryError as error:
            raise UmpteenError(
                f"updating {rows.stop - rows.start} labels at once does not fit the memory; "
                "give smaller blocks (pool.memory_mib)"
            ) from error

    return apply


def factor_type(labels: Tensor, precision: str, whole: torch.dtype) -> torch.dtype:
    """Return what the factors of products are rounded to; see ``label_blocks.streamed_loss``."""
    half = labels.dtype == torch.bfloat16 and labels.is_cuda
    return whole if precision == "fp32" and not half else torch.bfloat16


def multiply(left: Tensor, right: Tensor, kind: torch.dtype) -> Tensor:
    """Return ``left @ right`` of factors of one type, added up in float32 at least.

    In the given type.
    """
    with full_precision(left):
        if left.dtype == kind:
            return left @ right
        if left.is_cuda and kind == torch.float32:
            return torch.mm(left, right, out_dtype=kind)
        wide = torch.promote_types(left.dtype, torch.float32)
        return (left.to(wide) @ right.to(wide)).to(kind)


def sum_over_labels(slopes: Tensor, block: Tensor, kind: torch.dtype) -> Tensor:
    """Return ``slopes.T @ block``: (C, B) and (C, D) to (B, D)."""
    n_labels = len(slopes)
    even = n_labels - n_labels % PARTS
    if not (slopes.is_cuda and slopes.dtype == torch.bfloat16 and even >= 64 * PARTS):
        return multiply(slopes.T, block, kind)
    with full_precision(slopes):
        left = slopes[:even].unflatten(0, (PARTS, -1)).transpose(1, 2)  # (parts, B, C / parts)
        right = block[:even].unflatten(0, (PARTS, -1))
        total = torch.bmm(left, right, out_dtype=kind).sum(dim=0)
    if even < n_labels:
        total += multiply(slopes[even:].T, block[even:], kind)
    return total
