"""Random bits inside Triton kernels, drawn from a seed that lies on the device."""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN201, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def kept(seed, rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr, threshold):
    """Draw which elements of a block dropout keeps: (ROWS, COLUMNS) bool.

    An element's bit depends on the seed, its row and its column alone, so a backward kernel with
    the same columns draws the same ones. A call of Philox gives four numbers, and all are used.

    Args:
        seed: A number, loaded from the device.
        rows: (ROWS,) the rows' numbers, any integers that identify rows.
        ROWS: Their number, a power of two.
        COLUMNS: A power of two, at least 4.
        threshold: The share that is dropped, times 2 ** 31.
    """
    QUARTER: tl.constexpr = COLUMNS // 4
    counters = rows[:, None] * QUARTER + tl.arange(0, QUARTER)[None, :]
    a, b, c, d = tl.randint4x(seed, counters, 7)  # seven rounds pass the usual batteries of tests
    ab = tl.join(_above(a, threshold), _above(b, threshold))
    cd = tl.join(_above(c, threshold), _above(d, threshold))
    return tl.reshape(tl.join(ab, cd), (ROWS, COLUMNS)) != 0


@triton.jit
def _above(bits, threshold):
    # 31 bits, so that every threshold is an ordinary integer; bytes, as they change threads next.
    return ((bits >> 1).to(tl.int32) >= threshold).to(tl.int8)


def drop_threshold(rate: float) -> int:
    """Return what ``kept`` compares with, for a share of elements to drop in [0, 1)."""
    return int(rate * 2**31)
