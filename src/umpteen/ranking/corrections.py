"""What corrections add to the scores of an ensemble that was fitted before there were any."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.ranking.variants import Variant

FIRST_FIT = 32
"""Corrections from which on their weights are fitted."""
GROWTH = 2**0.5
"""The weights are fitted again when there are so many times more corrections."""

MAX_FITTED = 512
"""Corrections that the weights are fitted on: the newest ones."""


@dataclass(frozen=True)
class CorrectionWeights:
    """Weights of the features of corrections, and of the scorers beside them."""

    n: int
    """Corrections that they were fitted with; see ``fit_size``."""
    weights: NDArray[np.float64]
    """(F,) 0 or more: a correction never lowers its label. See ``correction_features``."""
    counts: NDArray[np.float32]
    """(labels + 1,) corrections of each label among these n; the last is 0, for padding."""
    variant: Variant
    """The default variant with other weights of its scorers, and calibrated with corrections."""

    def counts_of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the corrections of (B, K) labels; 0 for labels that were added later."""
        counts = torch.from_numpy(self.counts).to(rows.device)
        last = len(self.counts) - 1
        return counts[torch.where((rows < 0) | (rows > last), last, rows)]


def fit_size(n: int) -> int:
    """Return with how many of n corrections weights are fitted, 0 for no fit.

    The sizes rise geometrically, and depend on n alone: processes that read the same corrections in
    different steps fit with the same ones.

    Example:
        >>> [fit_size(n) for n in (31, 32, 45, 46, 64, 100_000)]
        [0, 32, 32, 46, 64, 92682]
    """
    if n < FIRST_FIT:
        return 0
    sizes = (math.ceil(FIRST_FIT * GROWTH**step - 1e-6) for step in itertools.count())
    return list(itertools.takewhile(lambda size: size <= n, sizes))[-1]


def fitted_rows(n: int) -> NDArray[np.int64]:
    """Return the positions of the corrections that weights are fitted on."""
    return np.arange(max(0, n - MAX_FITTED), n)
