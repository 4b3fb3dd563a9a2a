"""Reductions: how a query's positives are weighed against each other.

A reduction is one weight per positive, so every base loss gets all of them. PSL ("pick some
labels") is ``mean_of_positives`` on the positives that are in the batch's pool: the pool decides
which, not the reduction, so ``psl`` and ``pal-n`` are two names of one function.

Two reductions draw: ``pol`` one positive of each query, ``k-sample`` up to k. The positives that
were not drawn have a weight of 0. By default they leave the scores too. With ``competing`` they
stay candidates: plain softmax then has them in its denominator, where they compete with the drawn
one, as in DEXML's softmax. Decoupled softmax and binary cross-entropy leave a query's positives out
of its negatives in either case, so for them the option changes nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from umpteen.errors import ConfigError
from umpteen.objectives.base import Reduction, ranks_in_rows, sum_by_row
from umpteen.types import Positives


def sum_of_positives(positives: Positives, n_rows: int) -> Tensor:
    """Weigh every positive 1 (PAL); queries with many positives count more."""
    return torch.ones_like(positives.targets)


def mean_of_positives(positives: Positives, n_rows: int) -> Tensor:
    """Divide a weight of 1 among a query's positives in proportion to their targets (PAL-N).

    With the objective's own factor t_p the row's weights are t_p / sum of the row's t.
    """
    totals = sum_by_row(positives.targets, positives.rows, n_rows)
    return 1.0 / totals[positives.rows]


@dataclass(frozen=True)
class OneOfPositives:
    """POL: one positive of each query, drawn in proportion to the targets.

    The drawn one weighs 1 / target, so that with the objective's own factor it counts 1, and for a
    loss whose positives do not meet (all but ``softmax`` and ``soft_top_k``) the mean over draws is
    ``mean_of_positives``. Draws come from torch's default generator of the positives' device, which
    training seeds at every step, as it does for dropout.
    """

    competing: bool = False
    """Whether the other positives stay candidates."""
    draws = True

    @property
    def drops(self) -> bool:
        """Whether the other positives leave the scores."""
        return not self.competing

    def __call__(self, positives: Positives, n_rows: int) -> Tensor:
        """Return the weights (P,)."""
        # The first of independent exponential clocks with rates t rings at p with probability
        # t_p / sum t: one draw for every pair and a minimum by row, without a loop over rows.
        rows, targets = positives.rows, positives.targets
        clocks = torch.empty_like(targets).exponential_() / targets  # (P,)
        first = torch.full((n_rows,), float("inf"), dtype=targets.dtype, device=targets.device)
        first = first.scatter_reduce(0, rows, clocks, "amin")
        # Two clocks may ring at once, to rounding: the pair that is listed first has it.
        places = torch.arange(len(rows), device=rows.device)
        ringing = torch.where(clocks <= first[rows], places, len(rows))
        drawn = torch.full((n_rows,), len(rows), device=rows.device)
        drawn = drawn.scatter_reduce(0, rows, ringing, "amin")
        return torch.where(drawn[rows] == places, 1.0 / targets, 0.0)


@dataclass(frozen=True)
class SomeOfPositives:
    """Up to k positives of each query, drawn without repetition in proportion to the targets.

    Each drawn one counts the same, 1 / their number; with k = 1 this is ``OneOfPositives``. A query
    with k positives or fewer keeps all. For ``soft_top_k`` with the same k, as in DEXML: k places
    cannot hold more positives.
    """

    k: int = 5
    """How many positives are drawn."""
    competing: bool = False
    """Whether the other positives stay candidates."""
    draws = True

    def __post_init__(self) -> None:
        if not isinstance(self.k, int) or isinstance(self.k, bool) or self.k < 1:
            raise ConfigError(f"k-sample: k is {self.k!r}; it must be an integer of 1 or more")

    @property
    def drops(self) -> bool:
        """Whether the other positives leave the scores."""
        return not self.competing

    def __call__(self, positives: Positives, n_rows: int) -> Tensor:
        """Return the weights (P,)."""
        rows, targets = positives.rows, positives.targets
        # The k first of a row's exponential clocks are k draws without repetition.
        clocks = torch.empty_like(targets).exponential_() / targets  # (P,)
        chosen = ranks_in_rows(clocks, rows, n_rows) < self.k
        drawn = sum_by_row(chosen.to(targets.dtype), rows, n_rows)[rows]  # of the pair's row
        return torch.where(chosen, 1.0 / (drawn * targets), 0.0)


one_of_positives = OneOfPositives()
some_of_positives = SomeOfPositives()


def with_options(reduction: Reduction, options: dict[str, Any]) -> Reduction:
    """Return a reduction with some of its options changed.

    Raises:
        ConfigError: If it has no such option.
    """
    if not options:
        return reduction
    known: list[str] = []
    if dataclasses.is_dataclass(reduction) and not isinstance(reduction, type):
        known = [field.name for field in dataclasses.fields(reduction)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        accepted = ", ".join(known) if known else "it has none"
        raise ConfigError(
            f"loss.reduction_options: {', '.join(unknown)} is no option of this reduction "
            f"({accepted})"
        )
    changed: Reduction = dataclasses.replace(reduction, **options)  # type: ignore[type-var]
    return changed
