"""Propensity-scored metrics: a hit on a rare label is worth more. Weights come from train."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ConfigError
from umpteen.metrics.base import Hits, best_discounts, check_k, discounts


def inverse_propensities(
    label_counts: NDArray[np.int64], n_train: int, a: float, b: float
) -> NDArray[np.float64]:
    """Return what a hit on each label is worth: 1 + C (n + b)^-a with C = (ln N - 1)(b + 1)^a.

    Count labels on the training data as it was before any augmentation: rows made of label texts
    raise every n and N, and lift PSP by several percent without a better model.

    Args:
        label_counts: (L,) training queries n of each label.
        n_train: The number N of training queries.
        a: The exponent, a constant of the data set.
        b: The offset, a constant of the data set.

    Returns:
        (L,) float64 weights, 1 or more.

    Raises:
        ConfigError: If a is negative, b is not positive, or there is no training query.

    Example:
        >>> inverse_propensities(np.array([1, 100]), 1000, 0.55, 1.5).round(2).tolist()
        [6.91, 1.77]
    """
    if not (math.isfinite(a) and math.isfinite(b) and a >= 0 and b > 0):
        raise ConfigError(
            f"propensity constants a = {a} and b = {b} will not do; a must be 0 or more, b above 0"
        )
    if n_train < 1:
        raise ConfigError(f"propensities need training queries, got {n_train}")
    # Below e queries the logarithm would turn weights negative; the model says nothing there.
    scale = max(0.0, math.log(n_train) - 1.0) * (b + 1.0) ** a
    return 1.0 + scale * (np.asarray(label_counts, np.float64) + b) ** -a


@dataclass(frozen=True)
class PropensityPrecision:
    """PSP@k: weighted hits of all queries, over the weight the best k of each could have had.

    A ratio of two means, not a mean of ratios (Jain, Prabhu and Varma, 2016). It depends on the
    constants a and b, so print them beside it. Needs inverse propensities.

    >>> str(PropensityPrecision(5))
    'PSP@5'
    """

    k: int

    def __post_init__(self) -> None:
        check_k(self.k)

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) each query's part of the metric: weighted hits over the mean best.

        May pass 1.
        """
        return _parts(hits.weights(self.k).sum(axis=1), hits.ideal_weights(self.k).sum(axis=1))

    def mean(self, hits: Hits) -> float:
        """Return the ratio of means; queries without positives change neither."""
        return _ratio(hits.weights(self.k).sum(axis=1), hits.ideal_weights(self.k).sum(axis=1))

    def __str__(self) -> str:
        return f"PSP@{self.k}"


@dataclass(frozen=True)
class PropensityNDCG:
    """PSnDCG@k: as PSP@k, with each place discounted by 1 / log2(place + 1).

    Numerator and denominator are both divided, query by query, by the best unweighted sum of
    min(k, positives) places before the means are taken: the convention of the public evaluation
    code behind the published figures.

    >>> str(PropensityNDCG(3))
    'PSnDCG@3'
    """

    k: int

    def __post_init__(self) -> None:
        check_k(self.k)

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) each query's part of the metric; may pass 1."""
        return _parts(*self._sums(hits))

    def mean(self, hits: Hits) -> float:
        """Return the ratio of means; queries without positives change neither."""
        return _ratio(*self._sums(hits))

    def __str__(self) -> str:
        return f"PSnDCG@{self.k}"

    def _sums(self, hits: Hits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        bound = best_discounts(hits.n_positives, self.k)
        weights, ideal = hits.weights(self.k), hits.ideal_weights(self.k)
        reached = weights @ discounts(weights.shape[1]) / bound
        return reached, ideal @ discounts(ideal.shape[1]) / bound


def _ratio(reached: NDArray[np.float64], best: NDArray[np.float64]) -> float:
    total = float(best.sum())
    return min(float(reached.sum()) / total, 1.0) if total > 0 else 0.0


def _parts(reached: NDArray[np.float64], best: NDArray[np.float64]) -> NDArray[np.float64]:
    total = float(best.sum())
    return reached * (len(best) / total) if total > 0 else np.zeros(len(best))
