"""Reductions: how a query's positives are weighed against each other.

A reduction is one weight per positive, so every base loss gets all of them. PSL ("pick some
labels") is ``mean_of_positives`` on the positives that are in the batch's pool: the pool decides
which, not the reduction, so ``psl`` and ``pal-n`` are two names of one function.
"""

from __future__ import annotations

import torch
from torch import Tensor

from umpteen.objectives.base import sum_by_row
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


class _OneOfPositives:
    """POL: one positive of each query, drawn in proportion to the targets; the others are out.

    The drawn one weighs 1 / target, so that with the objective's own factor it counts 1, and for a
    loss whose positives do not meet (all but ``softmax`` and ``soft_top_k``) the mean over draws is
    ``mean_of_positives``. Draws come from torch's default generator of the positives' device, which
    training seeds at every step, as it does for dropout.
    """

    drops = True

    def __call__(self, positives: Positives, n_rows: int) -> Tensor:
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


one_of_positives = _OneOfPositives()
