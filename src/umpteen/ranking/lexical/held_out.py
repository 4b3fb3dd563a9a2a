"""How far weights should go from their anchor, by the ranking of texts that they did not learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.pair_features import pair_features
from umpteen.ranking.lexical.sparse_topk import look_up, top_k_of_rows

MAX_TEXTS = 1000
FEW_TEXTS = 100
"""Below this many texts nothing is chosen."""
MAX_PRODUCTS = 32 << 20
"""Products of texts and weights; fewer texts are used where they would be more."""
ERRORS = 2.0
"""Standard errors of the paired difference by which another distance must be better."""
CUTOFFS = (1, 3, 5)
CANDIDATES = 60
"""Best-scored labels of the whole way, which are ranked again by a share of it."""

LOWEST = -1e30
"""Score of no label."""


@dataclass(frozen=True)
class LabelledTexts:
    """Texts that no weight was learned from, with their labels."""

    texts: Sequence[str]
    targets: sp.csr_matrix
    """(B, L)."""
    filters: NDArray[np.int64] | None = None
    """(M, 2) pairs (text, label) that are not ranked."""


class HeldOutTexts:
    """Measures weights by the mean of P@1, P@3 and P@5 of texts.

    Args:
        queries: (B, V) tf-idf rows.
        texts: The same texts; ``MAX_TEXTS`` of them are used, evenly spaced.
    """

    def __init__(self, queries: sp.csr_matrix, texts: LabelledTexts) -> None:
        rows = np.unique(np.linspace(0, queries.shape[0] - 1, MAX_TEXTS).astype(np.int64))
        self.rows = rows[: queries.shape[0]]
        self.queries = sp.csr_matrix(queries[self.rows])
        self.truth = sp.csr_matrix(texts.targets[self.rows])
        shape = texts.targets.shape
        pairs = np.zeros((0, 2), np.int64) if texts.filters is None else texts.filters
        ones = np.ones(len(pairs), np.float32)
        banned = sp.csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=shape)
        self.banned = sp.csr_matrix(banned[self.rows])

    def best_share(
        self, anchor: NDArray[np.float32], weights: sp.csr_matrix, shares: Sequence[float]
    ) -> float:
        """Return which share of the way from the anchor ranks these texts best.

        Args:
            anchor: (W,) the anchor of each weight.
            weights: (L, V), the whole way.
            shares: To choose from, beside 1.

        Returns:
            1 unless another one is better by more than chance.
        """
        used = self._texts_within(weights)
        if used < FEW_TEXTS:
            return 1.0
        candidates, truth = self._candidates(weights, used)
        rows, ranks = np.nonzero(candidates >= 0)
        labels = candidates[rows, ranks]
        order = np.argsort(labels, kind="stable")
        rows, ranks, labels = rows[order], ranks[order], labels[order]
        features = pair_features(self.queries, weights, rows, labels)
        first, last = np.full((2, *candidates.shape), LOWEST, np.float32)
        first[rows, ranks] = features.times(torch.from_numpy(anchor)).numpy()
        last[rows, ranks] = features.times(torch.from_numpy(weights.data)).numpy()
        whole = _precision(last, truth)
        best, chosen = 0.0, 1.0
        for share in shares:
            mixed = np.float32(1 - share) * first + np.float32(share) * last
            gains = _precision(mixed, truth) - whole
            gain = float(gains.mean())
            if gain > max(best, ERRORS * float(gains.std()) / used**0.5):
                best, chosen = gain, share
        return chosen

    def comparison(
        self, pattern: sp.csr_matrix
    ) -> Callable[[NDArray[np.float32], NDArray[np.float32]], bool]:
        """Return what says whether the first weights (W,) are better than the second, beyond chance.

        Args:
            pattern: (L, V) the sparsity pattern of both.
        """

        def better(first: NDArray[np.float32], second: NDArray[np.float32]) -> bool:
            weights = sp.csr_matrix((second, pattern.indices, pattern.indptr), pattern.shape)
            return self.best_share(first, weights, (0.0,)) == 0.0

        return better

    def _texts_within(self, weights: sp.csr_matrix) -> int:
        """Return of how many texts the products stay within their limit."""
        postings = np.bincount(weights.indices, minlength=weights.shape[1])
        products = np.append(0, np.cumsum(postings[self.queries.indices]))
        reach = products[self.queries.indptr[1:]]
        return int(np.searchsorted(reach, MAX_PRODUCTS, side="right"))

    def _candidates(
        self, weights: sp.csr_matrix, used: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return (B, K) the best-scored labels of the first texts, -1 for none; which are right."""
        scores = sp.csr_matrix((weights @ sp.csr_matrix(self.queries[:used].T)).T)
        rows = top_k_of_rows(scores, CANDIDATES)[0]
        rows[look_up(self.banned[:used], rows) > 0] = -1
        return rows, look_up(self.truth[:used], rows) > 0


def _precision(scores: NDArray[np.float32], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return (B,) the mean precision at the cutoffs; largest scores first."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, : max(CUTOFFS)]
    hits = np.take_along_axis(truth, order, 1)
    return np.asarray(np.mean([hits[:, :k].mean(axis=1) for k in CUTOFFS], axis=0))
