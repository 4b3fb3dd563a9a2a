"""The sum of each packed text's vectors, as a Triton kernel. Imported where Triton is at hand."""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _sum(hidden, offsets, out, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    text = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    wide = columns < width
    start = tl.load(offsets + text)
    stop = tl.load(offsets + text + 1)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(start, stop, ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < stop)[:, None] & wide[None, :]
        places = rows[:, None].to(tl.int64) * width + columns[None, :]
        total += tl.load(hidden + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + text.to(tl.int64) * width + columns, tl.sum(total, axis=0), mask=wide)


def text_sum(hidden: Tensor, offsets: Tensor) -> Tensor:
    """Return sums of each text's rows.

    (N, width) and int32 offsets (M + 1,) to (M, width) in float32.
    """
    width = hidden.shape[1]
    columns = min(256, max(16, triton.next_power_of_2(width)))
    count = len(offsets) - 1
    out = torch.empty(count, width, dtype=torch.float32, device=hidden.device)
    grid = (count, triton.cdiv(width, columns))
    _sum[grid](hidden, offsets, out, width, ROWS=8, COLUMNS=columns, num_warps=4)
    return out
