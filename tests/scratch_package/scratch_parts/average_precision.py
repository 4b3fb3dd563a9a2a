"""Mean average precision."""

from dataclasses import dataclass

import numpy as np

from umpteen.metrics.base import average, check_k


@dataclass(frozen=True)
class AveragePrecision:
    """MAP@k: the precision at each hit among the first k places, over min(k, positives)."""

    k: int

    def __post_init__(self):
        check_k(self.k)

    def per_query(self, hits):
        found = hits.hits[:, : self.k]
        places = np.arange(1, found.shape[1] + 1)
        precisions = np.cumsum(found, axis=1) / places * found  # (N, k), 0 where there is no hit
        possible = np.minimum(hits.n_positives, self.k)
        return precisions.sum(axis=1) / np.maximum(possible, 1)

    def mean(self, hits):
        return average(self.per_query(hits))

    def __str__(self):
        return f"MAP@{self.k}"

    @staticmethod
    def definition(predicted, positives, weights, k):
        values = []
        for labels, right in zip(predicted, positives, strict=True):
            hits = [place for place, label in enumerate(labels[:k], start=1) if label in right]
            total = sum(n / place for n, place in enumerate(hits, start=1))
            values.append(total / min(k, len(right)) if right else 0.0)
        return sum(values) / len(values) if values else 0.0
