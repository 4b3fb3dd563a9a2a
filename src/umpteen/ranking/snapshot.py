"""Everything that can change while a model predicts, as it was at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.index.growing import GrowingIndex
from umpteen.ranking.corrections import CorrectionWeights
from umpteen.ranking.examples import Examples
from umpteen.ranking.lexical.added_labels import AddedTerms


@dataclass(frozen=True)
class Snapshot:
    """Labels and examples at one moment; immutable, and every request uses exactly one."""

    labels: LabelSet
    """Trained labels, then added ones; retired labels keep their rows."""
    n_trained: int
    label_counts: NDArray[np.int64]
    """(labels,) training texts of each label; 0 for added ones."""
    allowed: NDArray[np.bool_] | None
    """(labels,) False for retired labels; None while there are none."""
    added_vectors: GrowingIndex
    """Search vectors of the added labels."""
    added_terms: AddedTerms | None
    """tf-idf terms of the added labels; None without a lexical scorer."""
    examples: Examples
    revision: int = 0
    corrections: CorrectionWeights | None = None
    """What corrections add to scores; None while there are few, or where they add nothing."""

    @property
    def n_labels(self) -> int:
        """Rows of this snapshot are below this."""
        return len(self.labels)

    @cached_property
    def padded_counts(self) -> torch.Tensor:
        """(labels + 1,) ``label_counts`` with a 0 behind them, which row -1 reads."""
        return torch.from_numpy(np.append(self.label_counts, 0))

    def allowed_with(self, more: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Combine retired labels with a request's own filter.

        Raises:
            ValueError: If the filter has another length than the labels.
        """
        if more is None:
            return self.allowed
        if more.shape != (self.n_labels,):
            raise ValueError(f"allowed must be ({self.n_labels},) bool, got {more.shape}")
        return more if self.allowed is None else self.allowed & more

    def mask_of(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """(labels,) True for the labels with these ids; unknown ids are ignored."""
        mask = np.zeros(self.n_labels, np.bool_)
        rows = self.labels.rows
        mask[[rows[label_id] for label_id in ids if label_id in rows]] = True
        return mask
