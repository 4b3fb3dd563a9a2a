"""AdamW that touches only the rows a step has gradients for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from umpteen.compute.optim.quantization import rounding_key
from umpteen.compute.optim.row_update import RowTable, StepNumbers, update_rows_
from umpteen.training.row_optimizer import RowOptimizer


class RowAdamW(RowOptimizer):
    """Row-wise lazy AdamW for tables with sparse gradients.

    For each row r with a gradient g at step t, last touched at step u (0 at first):

        m_r = beta1^(t - u) m_r + (1 - beta1) g        what AdamW's moments would be, had the
        v_r = beta2^(t - u) v_r + (1 - beta2) g^2      gradients in between been zero
        w_r = w_r (1 - lr decay)^(t - u)
              - lr (m_r / (1 - beta1^t)) / (sqrt(v_r / (1 - beta2^t)) + eps)

    Moments and bias corrections equal those of dense AdamW that saw zeros in between. What is left
    out is the movement a row would have made by momentum alone in the skipped steps; the decay of
    the skipped steps is made up for with the present learning rate. A row touched at every step is
    updated exactly as by ``torch.optim.AdamW``.

    A table may be float32 (or float64), or bfloat16 with stochastic rounding; its moments float32
    or 8-bit codes (``compute/optim/quantization.py``). The arithmetic in between is float32 at
    least. On a GPU one kernel does it all.

    Args:
        params: Parameters or groups; gradients are sparse with one sparse dimension, or dense.
        lr: Learning rate.
        betas: Decay of the moments.
        eps: Added to the denominator.
        weight_decay: Decoupled decay.
        moments: ``fp32`` or ``int8``.
        unique_rows: Whether a sparse gradient names each row at most once, so that nothing need be
            sorted or added up. A promise: rows named twice would be updated wrongly.
        seed: With the step, decides how numbers are rounded.
        first_row: The number of the first row in the whole table, where ranks hold parts of it.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        moments: str = "fp32",
        unique_rows: bool = False,
        seed: int = 0,
        first_row: int = 0,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "moments": moments,
                "unique_rows": unique_rows,
                "seed": seed,
                "first_row": first_row,
            },
        )

    @torch.no_grad()
    def next_step(self, parameter: Tensor) -> StepNumbers:
        """Begin a parameter's next step; return the numbers that all its rows share."""
        state = self._state(parameter)
        state["step"] += 1
        return self.numbers(parameter)

    @torch.no_grad()
    def update(self, parameter: Tensor, rows: Tensor, values: Tensor) -> None:
        """Update some rows of the step begun last."""
        first = self._group(parameter)["first_row"]
        ids = rows + first if first else rows
        update_rows_(self.table(parameter), rows, values, self.numbers(parameter), ids=ids)

    def table(self, parameter: Tensor) -> RowTable:
        """Return the parameter with its moments."""
        state = self._state(parameter)
        parts = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        return RowTable(parameter.detach(), **parts)

    def numbers(self, parameter: Tensor) -> StepNumbers:
        """Return the numbers that all rows of the current step share."""
        group = self._group(parameter)
        step = self._state(parameter)["step"]
        return StepNumbers(
            step=step,
            lr=group["lr"],
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            key=rounding_key(group["seed"], step),
        )

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            new = RowTable.new(parameter.detach(), moments=self._group(parameter)["moments"])
            state["step"] = 0
            state.update({name: part for name, part in new.parts().items() if name != "vectors"})
        return state
