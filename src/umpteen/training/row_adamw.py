"""AdamW that touches only the rows a step has gradients for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

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

    Args:
        params: Parameters or groups; gradients are sparse with one sparse dimension, or dense.
        lr: Learning rate.
        betas: Decay of the moments.
        eps: Added to the denominator.
        weight_decay: Decoupled decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update the rows that have gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state; when each row was last touched stays a whole number.

        torch casts every state to the parameter's dtype, and float32 counts to 2^24 only.
        """
        super().load_state_dict(state_dict)
        saved = (index for group in state_dict["param_groups"] for index in group["params"])
        ours = (parameter for group in self.param_groups for parameter in group["params"])
        for index, parameter in zip(saved, ours, strict=True):
            if index in state_dict["state"]:
                touched = state_dict["state"][index]["touched"]
                # A copy, since the state goes on to change and the caller's must not.
                self.state[parameter]["touched"] = touched.to(parameter.device, copy=True)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
            state["touched"] = torch.zeros(
                len(parameter), dtype=torch.int32, device=parameter.device
            )
        state["step"] += 1
        for rows, values in _pieces(parameter.grad):
            _update_rows(parameter, state, group, rows, values)


def _pieces(gradient: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows that have a gradient, (R,), and their gradients, (R, D); equal rows have equal ones.

    A dense gradient (an objective over all labels) comes in blocks, so that an update never needs
    further memory of the table's size.
    """
    if gradient.is_sparse:
        if _may_wait(gradient):
            gradient = gradient.coalesce()
            yield gradient.indices()[0], gradient.values()
        else:
            yield totals_by_entry(gradient._indices()[0], gradient._values())
        return
    for start in range(0, len(gradient), ROWS_AT_ONCE):
        values = gradient[start : start + ROWS_AT_ONCE]
        yield torch.arange(start, start + len(values), device=gradient.device), values


def _may_wait(gradient: Tensor) -> bool:
    """Whether counting the distinct rows is free: a GPU would have to finish all its work first."""
    return not gradient.is_cuda


def totals_by_entry(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """What ``coalesce`` adds up, with a place for every entry, so that no size must be known.

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


def _update_rows(
    parameter: Tensor, state: dict[str, Any], group: dict[str, Any], rows: Tensor, values: Tensor
) -> None:
    step = state["step"]
    beta1, beta2 = group["betas"]
    skipped = (step - state["touched"][rows]).to(values.dtype).unsqueeze(1)  # (R, 1), t - u
    mean = state["mean"][rows] * beta1**skipped + (1 - beta1) * values
    square = state["square"][rows] * beta2**skipped + (1 - beta2) * values * values
    weights = parameter[rows]
    if group["weight_decay"]:
        weights = weights * (1 - group["lr"] * group["weight_decay"]) ** skipped
    denominator = (square / (1 - beta2**step)).sqrt() + group["eps"]
    weights = weights - group["lr"] * (mean / (1 - beta1**step)) / denominator
    parameter.index_copy_(0, rows, weights)
    state["mean"].index_copy_(0, rows, mean)
    state["square"].index_copy_(0, rows, square)
    state["touched"][rows] = step
