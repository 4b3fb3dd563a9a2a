"""AdamW that touches only the rows a step has gradients for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from umpteen.compute.optim.quantization import rounding_key
from umpteen.compute.optim.row_update import RowTable, StepNumbers, update_rows_

ROWS_AT_ONCE = 1 << 16


class RowAdamW(torch.optim.Optimizer):
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
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update the rows that have gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.next_step(parameter)
                    for rows, values in pieces(parameter.grad, unique=group["unique_rows"]):
                        self.update(parameter, rows, values)

    @torch.no_grad()
    def next_step(self, parameter: Tensor) -> StepNumbers:
        """Begin a parameter's next step; what its gradient is comes in pieces, by ``update``."""
        state = self._state(parameter)
        state["step"] += 1
        return self.numbers(parameter)

    @torch.no_grad()
    def update(self, parameter: Tensor, rows: Tensor, values: Tensor) -> None:
        """Update some rows of the step begun last; each row at most once a step.

        Args:
            parameter: The table.
            rows: (R,) int64; equal ones are neighbours with equal values, and count once.
            values: (R, D) gradients.
        """
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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state, every part in the type it was saved in.

        torch casts every state to the parameter's type, and when a row was last touched is a whole
        number, codes are bytes, and moments of a bfloat16 table are float32.
        """
        super().load_state_dict(state_dict)
        saved = (index for group in state_dict["param_groups"] for index in group["params"])
        ours = (parameter for group in self.param_groups for parameter in group["params"])
        for index, parameter in zip(saved, ours, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if isinstance(value, Tensor):
                    # A copy, since the state goes on to change and the caller's must not.
                    self.state[parameter][name] = value.to(parameter.device, copy=True)

    def _group(self, parameter: Tensor) -> dict[str, Any]:
        return next(g for g in self.param_groups if any(p is parameter for p in g["params"]))

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            new = RowTable.new(parameter.detach(), moments=self._group(parameter)["moments"])
            state["step"] = 0
            state.update({name: part for name, part in new.parts().items() if name != "vectors"})
        return state


def pieces(gradient: Any, *, unique: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows that have a gradient, (R,), and their gradients, (R, D).

    Equal rows have equal ones.

    A dense gradient (an objective over all labels) comes in blocks, so that an update never needs
    further memory of the table's size.
    """
    if gradient.is_sparse:
        if unique or (_may_wait(gradient) and _ascend(gradient._indices()[0])):
            yield gradient._indices()[0], gradient._values()
        elif _may_wait(gradient):
            gradient = gradient.coalesce()
            yield gradient.indices()[0], gradient.values()
        else:
            yield totals_by_entry(gradient._indices()[0], gradient._values())
        return
    for start in range(0, len(gradient), ROWS_AT_ONCE):
        values = gradient[start : start + ROWS_AT_ONCE]
        yield torch.arange(start, start + len(values), device=gradient.device), values


def _may_wait(gradient: Tensor) -> bool:
    """Return whether counting the distinct rows is free.

    A GPU would have to finish all its work first.
    """
    return not gradient.is_cuda


def _ascend(rows: Tensor) -> bool:
    """Return whether each row is named once, in order, so that there is nothing to add up."""
    return bool((rows[1:] > rows[:-1]).all())


def totals_by_entry(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return what ``coalesce`` adds up, with a place for every entry.

    So that no size must be known.

    Args:
        rows: (R,) row of each entry, in any order, with repetitions.
        values: (R, D).

    Returns:
        (R,) the rows, ascending, and (R, D) the sum of all values of each one's row.
    """
    order = torch.argsort(rows, stable=True)
    ascending = rows[order]
    is_new = torch.ones_like(ascending)
    is_new[1:] = ascending[1:] != ascending[:-1]
    place = is_new.cumsum(0) - 1
    # index_put adds in a fixed order, index_add on a GPU in any.
    totals = torch.zeros_like(values).index_put_((place,), values[order], accumulate=True)
    return ascending, totals[place]
