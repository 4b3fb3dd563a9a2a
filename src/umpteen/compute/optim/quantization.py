"""How the numbers of a table are kept small: bfloat16 vectors, 8-bit moments, unbiased rounding.

All rounding here is stochastic, up or down with the chance that makes the expected result the
exact number. Rounding to the nearest would swallow every change below half a step: an update of
1e-3 to a bfloat16 of 1, or the 0.1 % by which a second moment changes. The random bits of an entry
are a function of seed, step, row and column, so a step that is taken again rounds the same way, in
whatever order and company its rows come.

    mean     int8, linear: code * scale, scale = (the row's largest |mean|) / 127
    square   uint8, logarithmic: scale * 2^(OCTAVES (code - 255) / 255), scale = the row's largest;
             neighbours differ by 4.4 %, that is 2.2 % of the step's denominator. What is below
             2^-16 of the largest is kept as that, never as 0: a denominator may only err upwards.
"""

from __future__ import annotations

import torch
from torch import Tensor

OCTAVES = 16
STEP_OCTAVES = OCTAVES / 255
"""Between two codes of a square."""
NEXT_SHARE = 2.0**-STEP_OCTAVES
"""A code's number over the next higher one's."""
_WORD = 0xFFFFFFFF


def rounding_key(seed: int, step: int) -> int:
    """Return the key of a step's random bits.

    31 bits, so that a kernel's argument keeps its type.
    """
    x = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) % 2**64
    for multiplier in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        x = ((x ^ (x >> 30)) * multiplier) % 2**64
    return (x ^ (x >> 31)) & 0x7FFFFFFF


def _mix(x: Tensor) -> Tensor:
    """Return the finalizer of MurmurHash3 on 32-bit words, kept in int64."""
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B) & _WORD
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & _WORD
    return x ^ (x >> 16)


def random_words(ids: Tensor, dim: int, key: int, stream: int) -> Tensor:
    """Return 32 random bits for each column of each row: (R,) row numbers to (R, dim) int64.

    Args:
        ids: Rows as they are numbered in the whole table.
        dim: Columns.
        key: From ``rounding_key``.
        stream: 0 for vectors, 1 for moments.
    """
    row = _mix((ids & _WORD) ^ key)
    if stream:
        row = _mix(row ^ 0x68E31DA4)
    column = torch.arange(dim, device=ids.device) * 0x9E3779B1
    return _mix((row.unsqueeze(1) + column) & _WORD)


def to_bfloat16(values: Tensor, words: Tensor) -> Tensor:
    """Round float32 to bfloat16 stochastically, without bias; 16 of the bits are used.

    A float32 is a bfloat16 and 16 further bits: adding 16 random bits carries into the bfloat16
    with just the chance that those bits stand for.
    """
    bits = values.view(torch.int32) + (words >> 16).to(torch.int32)
    rounded = ((bits >> 16) << 16).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).to(torch.bfloat16)


def encode_mean(mean: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Encode (R, D) means as int8 codes and (R,) scales."""
    scale = mean.abs().amax(dim=1) / 127
    inverse = torch.where(scale > 0, 1 / scale, 0.0)
    uniform = (words & 0xFFFF).to(mean.dtype) / 65536
    code = (mean * inverse.unsqueeze(1) + uniform).floor().clamp(-127, 127)
    return code.to(torch.int8), scale


def decode_mean(code: Tensor, scale: Tensor) -> Tensor:
    """Decode (R, D) codes and (R,) scales to means."""
    return code.to(scale.dtype) * scale.unsqueeze(1)


def encode_square(square: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Encode (R, D) squares as uint8 codes and (R,) scales."""
    scale = square.amax(dim=1)
    share = torch.where(scale.unsqueeze(1) > 0, square / scale.unsqueeze(1), 1.0)
    below = (-torch.log2(share) / STEP_OCTAVES).clamp(0, 255)  # codes below the highest
    whole = below.floor()
    # Between two codes, the chance of the lower one that makes the expectation the exact number.
    lower = (1 - torch.exp2((whole - below) * STEP_OCTAVES)) / (1 - NEXT_SHARE)
    uniform = (words >> 16).to(square.dtype) / 65536
    code = 255 - (whole + (uniform < lower)).clamp(max=255)
    return code.to(torch.uint8), scale


def decode_square(code: Tensor, scale: Tensor) -> Tensor:
    """Decode (R, D) codes and (R,) scales to squares."""
    return torch.exp2((code.to(scale.dtype) - 255) * STEP_OCTAVES) * scale.unsqueeze(1)
