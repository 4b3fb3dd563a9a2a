"""SGD with momentum that touches only the rows a step has gradients for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from umpteen.training.row_optimizer import RowOptimizer


class RowSGD(RowOptimizer):
    """Row-wise lazy SGD with momentum, for tables with sparse gradients.

    For each row r with a gradient g at step t, last touched at step u (0 at first):

        b_r = momentum^(t - u) b_r + scale g + weight_decay w_r
        w_r = w_r - lr b_r

    A row touched at every step is updated exactly as by ``torch.optim.SGD`` with the gradient
    ``scale g``. What is left out of skipped steps is the movement by momentum and decay alone.
    Renee trains its label vectors so, on the sum over a batch's queries: ``scale`` is the batch's
    size where the gradient is that of a mean.

    Args:
        params: Parameters or groups; gradients are sparse with one sparse dimension, or dense.
        lr: Learning rate.
        momentum: Of the gradients' running sum.
        weight_decay: Added to the gradient, not decoupled.
        scale: Multiplies the gradient.
        unique_rows: Whether a sparse gradient names each row at most once.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        scale: float = 1.0,
        unique_rows: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "scale": scale,
                "unique_rows": unique_rows,
            },
        )

    @torch.no_grad()
    def next_step(self, parameter: Tensor) -> None:
        """Begin a parameter's next step."""
        self._state(parameter)["step"] += 1

    @torch.no_grad()
    def update(self, parameter: Tensor, rows: Tensor, values: Tensor) -> None:
        """Update some rows of the step begun last."""
        group = self._group(parameter)
        state = self._state(parameter)
        table, running, touched = parameter.detach(), state["momentum"], state["touched"]
        skipped = (state["step"] - touched[rows]).to(table.dtype).unsqueeze(1)  # (R, 1)
        current = table[rows]
        added = group["scale"] * values.to(table.dtype) + group["weight_decay"] * current
        moved = group["momentum"] ** skipped * running[rows] + added
        running[rows] = moved
        touched.index_fill_(0, rows, state["step"])  # a number as a value would wait for the GPU
        table[rows] = current - group["lr"] * moved

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["momentum"] = torch.zeros_like(parameter.detach())
            n, device = len(parameter), parameter.device
            state["touched"] = torch.zeros(n, dtype=torch.int32, device=device)
        return state
