"""Scores from eight-bit factors: a matrix unit multiplies them at twice the rate of bfloat16.

A number has three bits of fraction, so rounding moves it by up to 1/16 of itself; a score has D
such errors of either sign and is off by 0.038 |q| |l| / sqrt(D) (root mean square; a test holds
it), 20 times what bfloat16 factors bring. Rounding reads and writes the labels, which costs more
than the product saves while the label vectors are kept in anything wider.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

LARGEST = 440.0
"""Entries are scaled to this; the format ends at 448, and what is beyond has no number."""
EVEN = 16
"""Sizes that matrix units take."""


class Codes:
    """Rows of vectors (n, D) as eight-bit numbers, each row with a scale of its own."""

    def __init__(self, vectors: Tensor) -> None:
        most = torch.linalg.vector_norm(vectors, ord=float("inf"), dim=1, keepdim=True)
        # A scale that bfloat16 holds, so that dividing and multiplying take the same one.
        scale = (most.float() / LARGEST).clamp(min=1e-30).to(torch.bfloat16)
        self.codes = (vectors / scale.to(vectors.dtype)).to(torch.float8_e4m3fn)
        self.scale = scale.float()  # (n, 1)

    def values(self) -> Tensor:
        """Return (n, D), what the codes stand for, in float32."""
        return self.codes.float() * self.scale


def fits(dim: int) -> bool:
    """Return whether vectors have a size for eight-bit products.

    Others are multiplied in bfloat16.
    """
    return dim % EVEN == 0


def evened(queries: Tensor) -> Tensor:
    """Return (B, D) with rows of zeros up to a number that matrix units take.

    Batches have any size.

    A row without positives costs nothing, so that loss and gradients stay what they are.
    """
    return pad(queries, (0, 0, 0, -len(queries) % EVEN))


def multiply_codes(labels: Codes, queries: Codes) -> Tensor:
    """Return ``labels.values() @ queries.values().T``, (C, B) in bfloat16."""
    if not labels.codes.is_cuda:
        with torch.autocast("cpu", enabled=False):
            return (labels.values() @ queries.values().T).bfloat16()
    return torch._scaled_mm(
        labels.codes,
        queries.codes.T,
        scale_a=labels.scale,
        scale_b=queries.scale.T,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
