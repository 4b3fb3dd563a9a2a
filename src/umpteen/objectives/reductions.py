"""Reductions: how a query's positives are weighed against each other.

A reduction is one weight per positive, so every base loss gets all of them. PSL ("pick some
labels") is ``mean_of_positives`` on the positives that are in the batch's pool: the pool decides
which, not the reduction.
"""

from __future__ import annotations

import torch
from torch import Tensor

from umpteen.objectives.base import sum_by_row
from umpteen.types import Positives


def sum_of_positives(positives: Positives, n_rows: int) -> Tensor:
    """PAL: every positive counts 1, so queries with many positives count more."""
    return torch.ones_like(positives.targets)


def mean_of_positives(positives: Positives, n_rows: int) -> Tensor:
    """PAL-N: a query's positives share a weight of 1 in proportion to their targets.

    With the objective's own factor t_p the row's weights are t_p / sum of the row's t.
    """
    totals = sum_by_row(positives.targets, positives.rows, n_rows)
    return 1.0 / totals[positives.rows]
