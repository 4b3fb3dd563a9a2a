"""What a metric is and the one thing it reads: which predictions hit. No metric lives here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ConfigError


@dataclass(frozen=True)
class Hits:
    """Predictions beside the truth, compared once and read by every metric.

    Relevance is binary: a stored pair is a positive whatever its value. The truth is kept as
    pairs, the positives of query i being ``positives[offsets[i] : offsets[i + 1]]``.
    """

    rows: NDArray[np.int64]
    """(N, K) predicted label rows, negative where there is none."""
    hits: NDArray[np.bool_]
    """(N, K) whether the predicted label is a positive of the query."""
    offsets: NDArray[np.int64]
    """(N + 1,) where each query's positives start."""
    positives: NDArray[np.int64]
    """(P,) label rows of all positives, query after query."""
    n_labels: int
    inverse_propensities: NDArray[np.float64] | None = None
    """(L,) weight of a hit in propensity-scored metrics."""
    label_counts: NDArray[np.int64] | None = None
    """(L,) training queries of each label."""
    filled: NDArray[np.bool_] | None = None
    """(N, K) places with a prediction, also of labels that are not known; by default those with a
    label row."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def n_positives(self) -> NDArray[np.int64]:
        """(N,) positives of each query."""
        return np.diff(self.offsets)

    @cached_property
    def labels_with_positives(self) -> NDArray[np.int64]:
        """(L,) how many queries have each label as a positive."""
        return np.bincount(self.positives, minlength=self.n_labels)

    def n_predicted(self, k: int | None = None) -> NDArray[np.int64]:
        """Return (N,) predictions among the first k places, or among all."""
        filled = self.rows >= 0 if self.filled is None else self.filled
        return np.count_nonzero(filled[:, :k], axis=1)

    def counts(self, k: int) -> NDArray[np.int64]:
        """Return (N,) hits among the first k places."""
        return np.count_nonzero(self.hits[:, :k], axis=1)

    def hit_labels(self, k: int) -> NDArray[np.int64]:
        """Label rows of all hits among the first k places, one entry per hit."""
        return self.rows[:, :k][self.hits[:, :k]]

    def weights(self, k: int) -> NDArray[np.float64]:
        """Return (N, min(k, K)) inverse propensity of each hit, 0 where there is no hit."""
        hits = self.hits[:, :k]
        weights = np.zeros(hits.shape)
        weights[hits] = self._propensities()[self.rows[:, :k][hits]]
        return weights

    def ideal_weights(self, k: int) -> NDArray[np.float64]:
        """Return (N, at most k) the largest inverse propensities of each query's positives.

        Falling.
        """
        weights = np.zeros((len(self), min(k, self.n_positives.max(initial=0))))
        queries, places, sorted_weights = self._falling_weights
        reached = places < k
        weights[queries[reached], places[reached]] = sorted_weights[reached]
        return weights

    def _propensities(self) -> NDArray[np.float64]:
        if self.inverse_propensities is None:
            raise ConfigError(
                "PSP and PSnDCG need inverse propensities; give find_hits those of the train split"
            )
        return self.inverse_propensities

    @cached_property
    def _falling_weights(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        # Sorted once and shared by every k of every propensity-scored metric.
        queries = np.repeat(np.arange(len(self)), self.n_positives)
        weights = self._propensities()[self.positives]
        order = np.lexsort((-weights, queries))
        places = np.arange(len(queries)) - np.repeat(self.offsets[:-1], self.n_positives)
        return queries, places, weights[order]


class Metric(Protocol):
    """One number in [0, 1] from hits; printed as the text it is parsed from.

    A metric is a frozen dataclass whose constructor takes ``k`` (leave the default out if a k must
    be named) or nothing. Percent is a matter for whoever prints.

    If lists of nothing but positives reach 1 only for queries with ``k`` positives, or with
    ``at most k``, a class says so in the attribute ``positives_for_one``. It may have a static
    method ``definition``, which its results are compared with: it gets the predicted labels of each
    query in order, the set of positives of each, the weight of each label, and k.
    """

    def mean(self, hits: Hits) -> float:
        """Return the metric over all queries."""

    def __str__(self) -> str: ...


def measures_sets(metric: Metric) -> bool:
    """Return whether a metric measures label sets, such as MicroF1, not the first k places."""
    return bool(getattr(metric, "of_sets", False))


@runtime_checkable
class PerQuery(Protocol):
    """A metric that is an average over queries, so that each query has a value of its own."""

    def per_query(self, hits: Hits) -> NDArray[np.float64]:
        """Return (N,) values whose mean is the metric."""


def average(values: NDArray[np.float64]) -> float:
    """Return the mean, and 0 where there is no query at all."""
    return float(values.mean()) if len(values) else 0.0


def discounts(k: int) -> NDArray[np.float64]:
    """Return (k,) the weight of each place: 1 / log2(place + 1), counted from 1."""
    return 1.0 / np.log2(np.arange(k) + 2.0)


def best_discounts(n_positives: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return (N,) the largest discounted sum of min(positives, k) hits; 1 without positives."""
    # A query without positives has no hits, so the 1 only keeps 0 / 0 from becoming NaN.
    reachable = np.minimum(n_positives, k)
    totals = np.cumsum(discounts(int(reachable.max(initial=0))))
    return np.concatenate([[1.0], totals])[reachable]


def check_k(k: int) -> None:
    """Raise unless k can be a number of places.

    Args:
        k: The number.

    Raises:
        ConfigError: If k is below 1.
    """
    if k < 1:
        raise ConfigError(f"a metric at k = {k} is not possible; k counts places from 1")
