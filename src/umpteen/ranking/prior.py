"""Prior weights and calibration: what the ensemble uses before any validation query.

The values are means of fits to five data sets (MDN-SeeAlso, WordNet-Related, Debian-Related-NoHead,
EURLEX57K and debtags, titles): models of 20, 60 and 200 training texts, weights fitted to 400 other
texts of the same train split, none below 0, so that no vote lowers a score. Test splits were not
read. ``python -m bench ensemble prior`` fits and judges them again.

Each feature has a mean, a scale and a weight; the weight belongs to the standardized feature
(value - mean) / scale. The order of the features is that of ``features.columns``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umpteen.ranking.calibration import QUERY_INPUTS, Calibration, n_inputs
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS
from umpteen.ranking.unseen_labels import UnseenWeights

Feature = tuple[float, float, float]
"""Mean, scale, weight."""

SEEN: dict[str, tuple[Feature, ...]] = {
    "dual": ((-0.531, 0.244, 0.168), (0.163, 0.216, 0.192), (-0.472, 0.279, 0.09)),
    "classifier": ((-0.373, 0.191, 0.28), (0.1, 0.169, 0.324), (-0.347, 0.234, 0.127)),
    "knn": (
        (-4.58, 1.636, 0.041),
        (0.837, 0.593, 0.055),
        (0.085, 0.219, 0.116),
        (-3.947, 1.882, 0.012),
    ),
    "lexical_ranker": (
        (-10.405, 3.981, 0.335),
        (2.508, 2.526, 0.599),
        (0.739, 0.542, 0.091),
        (-8.922, 4.299, 0.218),
    ),
    # Not fitted with so few texts, so set by hand: of backlinks, near fits to validation texts of
    # MDN-SeeAlso and WordNet-Related, whose products with the frequency differ in sign.
    "backlinks": (
        (-5.763, 0.457, 0.2),
        (0.011, 0.1, 0.0),
        (0.004, 0.048, 0.055),
        (-10.086, 6.166, 0.0),
    ),
    "one_vs_rest": ((-4.5, 1.2, 0.18), (0.0, 0.3, 0.045), (-5.5, 1.2, 0.09), (-9.0, 6.0, 0.045)),
    "lexical_knn": (
        (-4.267, 1.501, 0.012),
        (0.582, 0.511, 0.1),
        (0.059, 0.136, 0.181),
        (-3.69, 1.717, 0.018),
    ),
}
"""Retriever to its features, for labels with training texts."""
FREQUENCY: tuple[Feature, ...] = ((0.918, 0.46, 0.238), (1.133, 1.133, -0.07))
"""The logarithm of the label's training texts, and its square."""
UNSEEN: dict[str, tuple[Feature, ...]] = {
    "dual": ((-0.403, 0.236, 0.332), (0.279, 0.214, 1.238)),
    "lexical_ranker": ((-10.561, 4.306, 0.187), (2.392, 3.144, 0.448), (0.55, 0.43, 0.167)),
}
"""Retriever to its features, for labels without training texts."""
UNSEEN_CONSTANT = 1.14
"""Score of a label without training texts whose features are average, where half of the labels of
new texts are such labels. The log-odds of that share are added: fitted constants follow them."""

SLOPE, CONSTANT, ENTROPY = 1.02, 2.31, -0.83
"""Coefficients of the prior calibration: log share, constant, entropy of the shares. The entropy is
near 0 for a sure answer among few labels and among many; the mass below the tenth label is not."""
PRIOR_THRESHOLD = 0.2
"""Half of the best F1 is the best threshold of calibrated probabilities. 0.15 is the best one of
these fits; more texts raise it."""


def unseen_share(label_counts: NDArray[np.int64]) -> float:
    """Estimate the share of the labels of new texts that have no training text.

    Good and Turing: the share of training pairs whose label has no other pair. On parts of five
    data sets it was right within 8 points, except debtags with 20 texts (0.24 for 0.41).

    Args:
        label_counts: (L,) training texts of each label.

    Returns:
        Inside (0, 1); one half without pairs.

    Example:
        >>> unseen_share(np.array([1, 1, 4, 2, 0]))
        0.3
    """
    return float((np.count_nonzero(label_counts == 1) + 1) / (label_counts.sum() + 2))


def prior_weights(retrievers: tuple[str, ...], unseen: float = 0.5) -> EnsembleWeights:
    """Assemble the prior weights of some retrievers.

    Returns:
        Weights for labels with and without training texts. A retriever without a row in the tables
        has the row of the first one of its kind.
    """
    table = np.array([f for name in retrievers for f in _row(SEEN, name)] + list(FREQUENCY))
    reading = [name for name in retrievers if RETRIEVER_SPECS[name].reads_label_text]
    constant = (0.0, 1.0, UNSEEN_CONSTANT + float(np.log(unseen) - np.log1p(-unseen)))
    by_text = np.array([f for name in reading for f in _row(UNSEEN, name)] + [constant])
    return EnsembleWeights(
        retrievers, table[:, 0], table[:, 1], table[:, 2], UnseenWeights(*by_text.T.copy())
    )


def prior_calibration(retrievers: tuple[str, ...], labels_per_text: float = 1.0) -> Calibration:
    """Return the calibration for the scores of the prior weights.

    Args:
        retrievers: Of the ensemble.
        labels_per_text: Mean number of labels of a training text; multiplies the odds.
    """
    shift = np.zeros(n_inputs(retrievers))
    shift[QUERY_INPUTS.index("constant")] = CONSTANT + np.log(max(labels_per_text, 1e-3))
    shift[QUERY_INPUTS.index("entropy")] = ENTROPY
    return Calibration(retrievers, SLOPE, shift, PRIOR_THRESHOLD)


def _row(table: dict[str, tuple[Feature, ...]], name: str) -> tuple[Feature, ...]:
    if name in table:
        return table[name]
    kind = RETRIEVER_SPECS[name].kind
    return next(row for other, row in table.items() if RETRIEVER_SPECS[other].kind == kind)
