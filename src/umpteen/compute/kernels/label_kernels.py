"""Summaries of a block of scores and their slopes as Triton kernels: one pass over the block each.

They equal ``explicit_gradients.PLAIN`` up to the rounding of float32 and the order of sums. The
products around them stay with the vendor's library, which multiplies faster than a kernel of ours
would; see bench/notes/profile-all-labels.md. Imported only where Triton is there.
"""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16
"""Labels of a tile."""
COLS = 128
"""Queries of a tile; a program goes down all its labels with the same queries."""
STRIP = 256
"""Labels of a program."""


LOWEST = tl.constexpr(-1e30)
"""Where maxima begin: below every score, and finite, so that a difference to -inf is no NaN."""


@triton.jit
def _softplus(scores, t):
    # With t = exp(-|score|). log1p of a small number by its series: 1 + t would lose it, and a
    # million labels have many.
    series = t * (1.0 - t * (0.5 - t * (0.3333333333 - t * 0.25)))
    return tl.maximum(scores, 0.0) + tl.where(t < 0.03, series, tl.log(1.0 + t))


@triton.jit
def _summarise(
    scores,
    parts,
    n_labels,
    n_queries,
    SOFTPLUS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STRIP: tl.constexpr,
):
    strip = tl.program_id(0)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = cols < n_queries
    first = strip * STRIP
    # Each thread sums up its own places of the tile; rows are merged once, at the end.
    most = tl.full((ROWS, COLS), LOWEST, tl.float32)
    total = tl.full((ROWS, COLS), 0.0, tl.float32)
    for offset in range(0, STRIP, ROWS):
        rows = first + offset + tl.arange(0, ROWS)
        there = (rows < n_labels)[:, None] & inside[None, :]
        places = rows[:, None].to(tl.int64) * n_queries + cols[None, :]
        tile = tl.load(scores + places, mask=there, other=float("-inf")).to(tl.float32)
        if SOFTPLUS:
            total += _softplus(tile, tl.exp(-tl.abs(tile)))
        else:
            # total exp(most - higher) + exp(tile - higher), of which one factor is always 1.
            change = tile - most
            smaller = tl.exp(-tl.abs(change))
            total = tl.where(change > 0.0, total * smaller + 1.0, total + smaller)
            most = tl.maximum(most, tile)
    if SOFTPLUS:
        summary = tl.sum(total, axis=0)
    else:
        top = tl.max(most, axis=0)
        merged = tl.sum(total * tl.exp(most - top[None, :]), axis=0)
        # Nothing was added where no label counts.
        logarithm = top + tl.log(tl.where(merged > 0.0, merged, 1.0))
        summary = tl.where(merged > 0.0, logarithm, float("-inf"))
    tl.store(parts + strip * n_queries + cols, summary, mask=inside)


@triton.jit
def _slopes(
    scores,
    slopes,
    parts,
    shift,
    factor,
    n_labels,
    n_queries,
    SOFTPLUS: tl.constexpr,
    SUMMARY: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STRIP: tl.constexpr,
):
    strip = tl.program_id(0)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = cols < n_queries
    first = strip * STRIP
    weights = tl.load(factor + cols, mask=inside, other=0.0)[None, :]
    if not SOFTPLUS:
        base = tl.load(shift + cols, mask=inside, other=0.0)[None, :]
    total = tl.full((ROWS, COLS), 0.0, tl.float32)
    for offset in range(0, STRIP, ROWS):
        rows = first + offset + tl.arange(0, ROWS)
        there = (rows < n_labels)[:, None] & inside[None, :]
        places = rows[:, None].to(tl.int64) * n_queries + cols[None, :]
        tile = tl.load(scores + places, mask=there, other=float("-inf")).to(tl.float32)
        if SOFTPLUS:
            t = tl.exp(-tl.abs(tile))  # of which sigmoid and softplus are both made
            value = weights * (tl.where(tile >= 0.0, 1.0, t) / (1.0 + t))
            if SUMMARY:
                total += _softplus(tile, t)
        else:
            value = weights * tl.exp(tile - base)
        tl.store(slopes + places, value.to(slopes.dtype.element_ty), mask=there)
    if SUMMARY:
        tl.store(parts + strip * n_queries + cols, tl.sum(total, axis=0), mask=inside)


class KernelSummary:
    """``SummaryFunctions`` for float32 or bfloat16 scores, contiguous (C, B)."""

    copies = 2

    def __init__(self, *, softplus: bool) -> None:
        self._softplus = softplus

    def summarise(self, scores: Tensor) -> Tensor:
        """Summarise (C, B) as (n, B) parts, reading the scores once."""
        grid, parts = self._layout(scores)
        _summarise[grid](
            scores, parts, *scores.shape,
            SOFTPLUS=self._softplus, ROWS=ROWS, COLS=COLS, STRIP=STRIP,
        )  # fmt: skip
        return parts

    def merge(self, parts: Tensor) -> Tensor:
        """Merge (n, B) to (B,)."""
        return parts.sum(dim=0) if self._softplus else torch.logsumexp(parts, dim=0)

    def slopes_(self, scores: Tensor, shift: Tensor, factor: Tensor, kind: torch.dtype) -> Tensor:
        """Map (C, B) to (C, B), reading each score once and writing each slope once."""
        return self._run(scores, shift, factor, kind, summary=False)[1]

    def summarise_and_slopes_(
        self, scores: Tensor, factor: Tensor, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Compute summaries and slopes in the same pass."""
        assert self._softplus
        return self._run(scores, factor, factor, kind, summary=True)

    def _run(
        self, scores: Tensor, shift: Tensor, factor: Tensor, kind: torch.dtype, *, summary: bool
    ) -> tuple[Tensor, Tensor]:
        grid, parts = self._layout(scores)
        slopes = torch.empty_like(scores, dtype=kind)
        _slopes[grid](
            scores, slopes, parts, shift.contiguous(), factor.contiguous(), *scores.shape,
            SOFTPLUS=self._softplus, SUMMARY=summary, ROWS=ROWS, COLS=COLS, STRIP=STRIP,
        )  # fmt: skip
        return parts, slopes

    def _layout(self, scores: Tensor) -> tuple[tuple[int, int], Tensor]:
        n_labels, n_queries = scores.shape
        strips = max(1, -(-n_labels // STRIP))
        parts = scores.new_empty(strips, n_queries, dtype=torch.float32)
        return (strips, -(-n_queries // COLS)), parts


KERNELS = {"logsumexp": KernelSummary(softplus=False), "softplus": KernelSummary(softplus=True)}
