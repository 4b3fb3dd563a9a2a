"""What optimizers share that touch only the rows a step has gradients for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

ROWS_AT_ONCE = 1 << 16


class RowOptimizer(torch.optim.Optimizer, ABC):
    """Takes gradients row by row: ``next_step`` begins a step, ``update`` changes some rows."""

    @abstractmethod
    def next_step(self, parameter: Tensor) -> Any:
        """Begin a parameter's next step; ``update`` receives its gradient in pieces."""

    @abstractmethod
    def update(self, parameter: Tensor, rows: Tensor, values: Tensor) -> None:
        """Update some rows of the step begun last; each row at most once a step.

        Args:
            parameter: The table.
            rows: (R,) int64; equal ones are neighbours with equal values, and count once.
            values: (R, D) gradients.
        """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update the rows that have gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.next_step(parameter)
                    for rows, values in pieces(parameter.grad, unique=group["unique_rows"]):
                        self.update(parameter, rows, values)

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
