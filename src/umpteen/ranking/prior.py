"""Prior weights and calibration: what the ensemble uses before any validation query.

The values are set by hand, not fitted, and were checked on two data sets only (debtags and
MDN-SeeAlso). Each feature has a mean, a scale and a weight; the weight belongs to the standardized
feature (value - mean) / scale. The order of the features is that of ``features.columns``.
"""

from __future__ import annotations

import numpy as np

from umpteen.ranking.calibration import QUERY_INPUTS, Calibration, n_inputs
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS
from umpteen.ranking.unseen_labels import UnseenWeights

Feature = tuple[float, float, float]
"""Mean, scale, weight."""

SEEN: dict[str, tuple[Feature, ...]] = {
    "dual": ((-0.25, 0.12, 0.36), (0.35, 0.14, 0.135), (-0.6, 0.45, 0.045)),
    "classifier": ((-0.25, 0.12, 0.36), (0.3, 0.14, 0.135), (-0.6, 0.45, 0.045)),
    "knn": ((-4.9, 1.5, 0.27), (0.4, 0.49, 0.045), (0.03, 0.08, 0.045), (-9.0, 5.0, 0.045)),
    "lexical_ranker": ((-7.0, 3.0, 0.27), (4.0, 3.0, 0.045), (0.95, 0.2, 0.0), (-12.0, 9.0, 0.045)),
    "one_vs_rest": ((-4.5, 1.2, 0.18), (0.0, 0.3, 0.045), (-5.5, 1.2, 0.09), (-9.0, 6.0, 0.045)),
    "lexical_knn": (
        (-4.9, 1.5, 0.135),
        (0.4, 0.49, 0.045),
        (0.03, 0.08, 0.045),
        (-9.0, 5.0, 0.045),
    ),
}
"""Retriever to its features, for labels with training texts."""
FREQUENCY: tuple[Feature, ...] = ((2.0, 1.2, 0.0), (5.5, 6.0, 0.0))
"""The logarithm of the label's training texts, and its square."""
UNSEEN: dict[str, tuple[Feature, ...]] = {
    "dual": ((-0.25, 0.12, 0.36), (0.35, 0.14, 0.18)),
    "lexical_ranker": ((-8.0, 3.0, 0.225), (3.0, 3.0, 0.135), (0.8, 0.4, 0.045)),
}
"""Retriever to its features, for labels without training texts."""
UNSEEN_CONSTANT = 0.0
"""Score of a label without training texts whose features are average."""

SLOPE, CONSTANT, TAIL = 0.9, -0.5, -0.5
"""Coefficients of the prior calibration: log share, constant, tail."""
PRIOR_THRESHOLD = 0.33
"""The best threshold of calibrated probabilities is half of the best F1, about two thirds."""


def prior_weights(retrievers: tuple[str, ...]) -> EnsembleWeights:
    """Assemble the prior weights of some retrievers.

    Args:
        retrievers: In the order of their features.

    Returns:
        Weights for labels with and without training texts. A retriever without a row in the tables
        has the row of the first one of its kind.
    """
    table = np.array([f for name in retrievers for f in _row(SEEN, name)] + list(FREQUENCY))
    reading = [name for name in retrievers if RETRIEVER_SPECS[name].reads_label_text]
    constant = (0.0, 1.0, UNSEEN_CONSTANT)
    unseen = np.array([f for name in reading for f in _row(UNSEEN, name)] + [constant])
    return EnsembleWeights(
        retrievers, table[:, 0], table[:, 1], table[:, 2], UnseenWeights(*unseen.T.copy())
    )


def prior_calibration(retrievers: tuple[str, ...], labels_per_text: float = 1.0) -> Calibration:
    """Return the calibration for the scores of the prior weights.

    Args:
        retrievers: Of the ensemble.
        labels_per_text: Mean number of labels of a training text; multiplies the odds.

    Returns:
        With the threshold ``PRIOR_THRESHOLD``.
    """
    shift = np.zeros(n_inputs(retrievers))
    shift[QUERY_INPUTS.index("constant")] = CONSTANT + np.log(max(labels_per_text, 1e-3))
    shift[QUERY_INPUTS.index("tail")] = TAIL
    return Calibration(retrievers, SLOPE, shift, PRIOR_THRESHOLD)


def _row(table: dict[str, tuple[Feature, ...]], name: str) -> tuple[Feature, ...]:
    if name in table:
        return table[name]
    kind = RETRIEVER_SPECS[name].kind
    return next(row for other, row in table.items() if RETRIEVER_SPECS[other].kind == kind)
