"""The AdamW update of some rows of a table: the plain expression, and who computes it.

What a row's update is, and which rows there are, is said in ``training/row_adamw.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from umpteen.compute.optim import quantization

LARGEST_DIM = 4096
"""Of a row that one program of the kernel holds."""
NUMBERS_IN_CACHE = 1 << 17
"""Updated at once on a CPU, so that a dozen passes over them find them in its caches."""


@dataclass
class RowTable:
    """A table and its moments; vectors in float32, bfloat16 or float64."""

    vectors: Tensor
    """(L, D)."""
    touched: Tensor
    """(L,) int32, the step that last updated each row, 0 for none."""
    mean: Tensor
    """(L, D), in float32 or float64; or int8 codes."""
    square: Tensor
    """(L, D), in float32 or float64; or uint8 codes."""
    mean_scale: Tensor | None = None
    """(L,) of the codes; None where the moments are numbers."""
    square_scale: Tensor | None = None

    @classmethod
    def new(cls, vectors: Tensor, *, moments: str = "fp32") -> RowTable:
        """Return a table that no step has touched; moments are ``fp32`` or ``int8``."""
        n, device = len(vectors), vectors.device
        full = torch.promote_types(vectors.dtype, torch.float32)
        touched = torch.zeros(n, dtype=torch.int32, device=device)
        kinds = (torch.int8, torch.uint8) if moments == "int8" else (full, full)
        mean, square = (torch.zeros_like(vectors, dtype=kind) for kind in kinds)
        table = cls(vectors, touched, mean, square)
        if moments == "int8":
            table.mean_scale = torch.zeros(n, dtype=full, device=device)
            table.square_scale = torch.zeros(n, dtype=full, device=device)
        return table

    def parts(self) -> dict[str, Tensor]:
        """Return all tensors it has, by name; each has a row per row of the table."""
        named = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def map(self, change: Callable[[Tensor], Tensor]) -> RowTable:
        """Return the table of changed tensors."""
        return RowTable(**{name: change(tensor) for name, tensor in self.parts().items()})


@dataclass(frozen=True)
class StepNumbers:
    """What is the same for all rows of a step."""

    step: int
    """Counted from 1."""
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    key: int = 0
    """From ``quantization.rounding_key``; used where something is rounded."""

    @property
    def corrections(self) -> tuple[float, float]:
        """What the moments are divided by: 1 - beta^step."""
        return 1 - self.betas[0] ** self.step, 1 - self.betas[1] ** self.step

    @property
    def kept(self) -> float:
        """What one step's weight decay leaves of a weight."""
        return 1 - self.lr * self.weight_decay


def update_rows_(
    table: RowTable, rows: Tensor, values: Tensor, at: StepNumbers, *, ids: Tensor | None = None
) -> None:
    """Update the rows that have gradients, by the fused kernel where there is one.

    Args:
        table: Changed in place, all of its tensors.
        rows: (R,) int64. Equal ones must be neighbours and have equal gradients; they count once.
        values: (R, D) gradients.
        at: The step.
        ids: (R,) the rows' numbers for random bits; the rows themselves if None.
    """
    ids = rows if ids is None else ids
    if not len(rows):
        return
    if _kernel_fits(table, values):
        from umpteen.compute.kernels.row_kernel import launch

        launch(table, rows, values, at, ids=ids)
    elif table.vectors.is_cuda:
        plain_update_(table, rows, values, at, ids=ids)
    else:
        _update_in_cache_(table, rows, values, at, ids)


def _update_in_cache_(
    table: RowTable, rows: Tensor, values: Tensor, at: StepNumbers, ids: Tensor
) -> None:
    """Run ``plain_update_`` on a few rows at a time, with bit-identical results."""
    size = max(1, NUMBERS_IN_CACHE // max(1, values.shape[1]))
    if len(rows) > size and not (different := rows.diff() != 0).all():
        # Else equal rows on both sides of a cut would count twice.
        kept = torch.cat([different.new_ones(1), different]).nonzero().squeeze(1)
        rows, values, ids = (part.index_select(0, kept) for part in (rows, values, ids))
    parts = (part.split(size) for part in (rows, values, ids))
    for some_rows, some_values, some_ids in zip(*parts, strict=True):
        plain_update_(table, some_rows, some_values, at, ids=some_ids)


def _kernel_fits(table: RowTable, values: Tensor) -> bool:
    kinds = {torch.float32, torch.bfloat16}
    fits = table.vectors.dtype in kinds and table.vectors.shape[1] <= LARGEST_DIM
    return table.vectors.is_cuda and fits and values.dtype in kinds and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def plain_update_(
    table: RowTable, rows: Tensor, values: Tensor, at: StepNumbers, *, ids: Tensor
) -> None:
    """Update rows with plain tensor operations: the reference of ``update_rows_``."""
    full = torch.promote_types(table.vectors.dtype, torch.float32)
    values = values.to(full)
    coded = table.mean_scale is not None
    beta1, beta2 = at.betas
    # index_select copies rows whole, which [] does not: five times as fast on a CPU.
    skipped = (at.step - table.touched.index_select(0, rows)).to(full).unsqueeze(1)  # (R, 1), t - u
    mean, square = _moments(table, rows)
    # In place on what was gathered: on a CPU, passes over memory are what an update costs.
    mean = mean.mul_(_power(beta1, skipped)).add_(values, alpha=1 - beta1)
    square = square.mul_(_power(beta2, skipped)).addcmul_(values, values, value=1 - beta2)
    weights = table.vectors.index_select(0, rows).to(full)
    if at.weight_decay:
        weights.mul_(_power(at.kept, skipped))
    corrections = at.corrections
    denominator = (square / corrections[1]).sqrt_().add_(at.eps)
    weights.addcdiv_(mean, denominator, value=-at.lr / corrections[0])
    dim = values.shape[1]
    new: dict[str, Any] = {"vectors": weights, "mean": mean, "square": square}
    if table.vectors.dtype == torch.bfloat16:
        new["vectors"] = quantization.to_bfloat16(
            weights, quantization.random_words(ids, dim, at.key, stream=0)
        )
    if coded:
        words = quantization.random_words(ids, dim, at.key, stream=1)
        new["mean"], new["mean_scale"] = quantization.encode_mean(mean, words)
        new["square"], new["square_scale"] = quantization.encode_square(square, words)
    for name, tensor in new.items():
        getattr(table, name).index_copy_(0, rows, tensor)
    table.touched.index_fill_(0, rows, at.step)


def _moments(table: RowTable, rows: Tensor) -> tuple[Tensor, Tensor]:
    mean, square = table.mean.index_select(0, rows), table.square.index_select(0, rows)
    if table.mean_scale is None or table.square_scale is None:
        return mean, square
    return (
        quantization.decode_mean(mean, table.mean_scale[rows]),
        quantization.decode_square(square, table.square_scale[rows]),
    )


def _power(base: float, exponent: Tensor) -> Tensor:
    """Compute base^exponent from the base's logarithm.

    Near 1 a float32 of the base itself would be coarse.

    For an exponent of 1 it is the base.
    """
    return torch.where(exponent == 1, base, torch.exp2(exponent * log2(base)))


def log2(base: float) -> float:
    """Return the logarithm, -inf for 0."""
    return math.log2(base) if base > 0 else -math.inf
