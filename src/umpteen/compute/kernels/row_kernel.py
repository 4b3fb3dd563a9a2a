"""The row update as one Triton kernel: a program for each row, everything read and written once.

It equals ``row_update.plain_update_`` up to the rounding of float32 sums. Imported only where
Triton is there.
"""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from umpteen.compute.optim.quantization import NEXT_SHARE, STEP_OCTAVES
from umpteen.compute.optim.row_update import RowTable, StepNumbers, log2


@triton.jit
def _mix(x):
    x = x ^ (x >> 16)
    x = x * 0x85EBCA6B
    x = x ^ (x >> 13)
    x = x * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def _power(base, log_base, exponent):
    return tl.where(exponent == 1.0, base, tl.exp2(exponent * log_base))


@triton.jit
def _round_to_bfloat16(values, words):
    bits = values.to(tl.uint32, bitcast=True) + (words >> 16)
    rounded = ((bits >> 16) << 16).to(tl.float32, bitcast=True)
    finite = tl.abs(values) < float("inf")
    return tl.where(finite, rounded, values).to(tl.bfloat16)


# The numbers that change from step to step must not be part of what is compiled.
@triton.jit(do_not_specialize=["step", "key"])
def _update(
    vectors,
    touched,
    mean,
    square,
    mean_scale,
    square_scale,
    rows,
    ids,
    values,
    step,
    key,
    lr,
    beta1,
    beta2,
    gain1,
    gain2,
    kept,
    log_beta1,
    log_beta2,
    log_kept,
    mean_correction,
    square_correction,
    eps,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ROUNDED: tl.constexpr,
    CODED: tl.constexpr,
    STEP: tl.constexpr,
    SHARE: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + place)
    before = tl.load(rows + place - 1, mask=place > 0, other=-1)
    if row != before:  # of equal neighbours the first counts
        column = tl.arange(0, BLOCK)
        inside = column < DIM
        entry = row * DIM + column
        skipped = (step - tl.load(touched + row)).to(tl.float32)
        g = tl.load(values + place * DIM + column, mask=inside, other=0.0).to(tl.float32)
        m = tl.load(mean + entry, mask=inside, other=0).to(tl.float32)
        v = tl.load(square + entry, mask=inside, other=0).to(tl.float32)
        w = tl.load(vectors + entry, mask=inside, other=0.0).to(tl.float32)
        if CODED:
            m = m * tl.load(mean_scale + row)
            v = tl.exp2((v - 255.0) * STEP) * tl.load(square_scale + row)
        m = m * _power(beta1, log_beta1, skipped) + gain1 * g
        v = v * _power(beta2, log_beta2, skipped) + gain2 * g * g
        w = w * _power(kept, log_kept, skipped)
        w = w - lr * (m / mean_correction) / (tl.sqrt(v / square_correction) + eps)
        if ROUNDED or CODED:
            number = tl.load(ids + place).to(tl.uint32) + tl.zeros([BLOCK], tl.uint32)
            start = _mix(number ^ key.to(tl.uint32))
            offset = column.to(tl.uint32) * 0x9E3779B1
        if ROUNDED:
            w = _round_to_bfloat16(w, _mix(start + offset)).to(tl.float32)
        tl.store(vectors + entry, w, mask=inside)
        if CODED:
            words = _mix(_mix(start ^ 0x68E31DA4) + offset)
            m = tl.where(inside, m, 0.0)
            scale = tl.max(tl.abs(m), axis=0) / 127.0
            inverse = tl.where(scale > 0, 1.0 / scale, 0.0)
            uniform = (words & 0xFFFF).to(tl.float32) / 65536.0
            code = tl.floor(m * inverse + uniform)
            code = tl.minimum(tl.maximum(code, -127.0), 127.0)
            tl.store(mean + entry, code.to(tl.int8), mask=inside)
            tl.store(mean_scale + row, scale)
            v = tl.where(inside, v, 0.0)
            scale = tl.max(v, axis=0)
            share = tl.where(scale > 0, v / scale, 1.0)
            below = tl.minimum(tl.maximum(-tl.log2(share) / STEP, 0.0), 255.0)
            whole = tl.floor(below)
            lower = (1.0 - tl.exp2((whole - below) * STEP)) / (1.0 - SHARE)
            uniform = (words >> 16).to(tl.float32) / 65536.0
            below = tl.minimum(whole + tl.where(uniform < lower, 1.0, 0.0), 255.0)
            tl.store(square + entry, (255.0 - below).to(tl.uint8), mask=inside)
            tl.store(square_scale + row, scale)
        else:
            tl.store(mean + entry, m, mask=inside)
            tl.store(square + entry, v, mask=inside)
        tl.store(touched + row, step)


def launch(table: RowTable, rows: Tensor, values: Tensor, at: StepNumbers, *, ids: Tensor) -> None:
    """Update rows as ``row_update.update_rows_`` says; nothing waits for the device.

    Learning rate, step and key are arguments, so one compilation serves all steps.
    """
    dim = table.vectors.shape[1]
    coded = table.mean_scale is not None
    beta1, beta2 = at.betas
    mean_correction, square_correction = at.corrections
    _update[(len(rows),)](
        table.vectors,
        table.touched,
        table.mean,
        table.square,
        # Where there are no scales the kernel has no use for the pointers.
        table.mean_scale if coded else table.mean,
        table.square_scale if coded else table.square,
        rows.contiguous(),
        ids.contiguous(),
        values.contiguous(),
        at.step,
        at.key,
        float(at.lr),
        float(beta1),
        float(beta2),
        1.0 - beta1,
        1.0 - beta2,
        float(at.kept),
        log2(beta1),
        log2(beta2),
        log2(at.kept),
        mean_correction,
        square_correction,
        float(at.eps),
        DIM=dim,
        BLOCK=triton.next_power_of_2(dim),
        ROUNDED=table.vectors.dtype == torch.bfloat16,
        CODED=coded,
        STEP=STEP_OCTAVES,
        SHARE=NEXT_SHARE,
        num_warps=1 if dim <= 128 else 4,
    )
