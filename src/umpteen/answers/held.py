"""Held-out queries: what the fused answer is fitted on and judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.choosing import METRICS
from umpteen.data.dataset import Propensity, Split
from umpteen.scoring import score
from umpteen.types import TopK

if TYPE_CHECKING:
    from umpteen.predictor import Predictor


@dataclass(frozen=True)
class Held:
    """Queries that no part was trained on, with all that is needed to judge answers to them."""

    split: Split
    texts: Sequence[str]
    vectors: torch.Tensor
    truth: sp.csr_matrix
    label_counts: NDArray[np.int64]
    n_train: int
    propensity: Propensity

    def judge(self, top: TopK, metrics: Sequence[str] = METRICS) -> dict[str, float]:
        """Metrics in percent."""
        report = score(
            top,
            self.split,
            label_counts=self.label_counts,
            n_train=self.n_train,
            propensity=self.propensity,
            metrics=metrics,
        )
        return dict(report.values)


def held_out(
    predictor: Predictor,
    split: Split,
    *,
    label_counts: NDArray[np.int64],
    n_train: int,
    propensity: Propensity,
) -> Held:
    """Encode held-out queries.

    Args:
        predictor: The model.
        split: The queries.
        label_counts: (L,) of the queries that the parts learned from, these not among them.
        n_train: How many those were.
        propensity: Their constants.

    Returns:
        What ``fit_recipe`` reads.
    """
    texts = split.texts(predictor.reading.text)
    vectors = predictor.vectors(texts)
    truth = split.filtered_targets()
    return Held(split, texts, vectors, truth, label_counts, n_train, propensity)
