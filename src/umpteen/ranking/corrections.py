"""What corrections add to the scores of an ensemble that was fitted before there were any."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.ranking.variants import Variant
from umpteen.store.state import StoredExamples

N_VOTES = 2
"""The first weights are those of votes by vectors and by terms; ``count_features`` follow."""
N_FEATURES = N_VOTES + 3
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
    """(F,) 0 or more: a correction never lowers its label."""
    counts: NDArray[np.float32]
    """(labels + 1,) corrections of each label among these n; the last is 0, for padding."""
    variant: Variant
    """The default variant with other weights of its scorers, and calibrated with corrections."""

    def count_values(self, rows: torch.Tensor, unseen: torch.Tensor) -> torch.Tensor:
        """Return what the number of their corrections adds to labels.

        Args:
            rows: (B, K), -1 for padding.
            unseen: (B, K) labels without training texts.

        Returns:
            (B, K) float32; 0 for padding and for labels that were added after the fit.
        """
        table = self._table.to(rows.device)
        places = rows.clamp_max(table.shape[1] - 1)  # row -1 reads the last one too
        return torch.where(unseen, table[1][places], table[0][places])

    @cached_property
    def _table(self) -> torch.Tensor:
        """(2, labels + 1) values of labels with and without training texts."""
        counts = self.counts.astype(np.float64)
        values = count_features(counts, np.array([[0.0], [1.0]])) @ self.weights[N_VOTES:]
        return torch.from_numpy(values.astype(np.float32))


def count_features(counts: NDArray[Any], unseen: NDArray[Any]) -> NDArray[np.float64]:
    """Compute the features of the number of corrections with a label.

    Args:
        counts: Corrections of each label.
        unseen: 1 for labels without training texts, 0 for others; broadcast with the counts.

    Returns:
        The shape of both, and three features: the logarithm; for unseen labels that again, and
        whether there is any.
    """
    counts, unseen = np.broadcast_arrays(counts, unseen)
    logs = np.log1p(counts)
    return np.stack([logs, logs * unseen, (counts > 0) * unseen], axis=-1).astype(np.float64)


def correction_counts(stored: StoredExamples, n: int, n_labels: int) -> NDArray[np.int64]:
    """(n_labels,) corrections of each label among the first n."""
    rows = stored.label_rows(0, n)[1]
    return np.bincount(rows, minlength=n_labels)[:n_labels]


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
