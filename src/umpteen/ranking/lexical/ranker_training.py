"""Train the weights of the lexical ranker against mined hard negatives."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.log_lines import Detail
from umpteen.ranking.lexical.descent import DescentResult, descend
from umpteen.ranking.lexical.hard_negatives import mine_hard_negatives
from umpteen.ranking.lexical.held_out import HeldOutTexts
from umpteen.ranking.lexical.matrices import keep_largest
from umpteen.ranking.lexical.pair_features import LabelledPairs
from umpteen.ranking.lexical.sparsity import find_sorted, values_at, widen
from umpteen.sorted_unique import sorted_unique

SCALE = 20.0
"""Length of a label's initial weights; tf-idf vectors have length one."""
MIN_TERMS = 32
MIN_CANDIDATES = 60
USUAL_POSITIVES = 6.0
"""Labels per text up to which the number of candidates holds as it is. With more of them, more of
the best-scored labels are positives."""
PAIRS_PER_CANDIDATE = 1.1
"""The second round adds half of the first round's candidates, of which most are mined again."""

SHARES = (0.7, 0.85, 1.15, 1.3)
"""Shares of the way from the anchor that weights may go, where that is better for held-out texts:
nearer to it, and beyond the minimum of the loss."""


@dataclass(frozen=True)
class LexicalConfig:
    """Hyperparameters of the lexical ranker."""

    candidates: int = 100
    """Best-scored labels mined per text and round; down to ``MIN_CANDIDATES`` for long texts, and
    more where texts have many labels."""
    steps: tuple[int, ...] = (15, 40)
    """Descent steps of each round."""
    decay: float = 0.1
    """Strength of the pull to the initial weights."""
    widening: int = 8
    """Hard negatives of a text that get weights for its terms."""
    max_weights: int = 16 << 20
    """Weights of all labels together; see ``weights_limit``."""
    weights_per_label: int = 213
    """Weights for each label on average, where that is more."""
    max_weights_of_many: int = 64 << 20
    """And no more than these."""
    max_products: int = 384 << 20
    """Products of term and weight in one step; beyond it texts keep their largest terms."""
    min_weight: float = 0.02
    """Smaller weights are dropped."""
    max_postings: int = 1000
    """Labels per term that retrieve candidates, those of largest weight, of many labels."""
    many_labels: int = 16384
    """Number of labels above which ``max_postings`` applies."""

    def weights_limit(self, n_labels: int) -> int:
        """Return the limit on the weights of all labels together.

        Example:
            >>> [LexicalConfig().weights_limit(n) >> 20 for n in (50_000, 200_000, 1_000_000)]
            [16, 40, 64]
        """
        more = min(self.weights_per_label * n_labels, self.max_weights_of_many)
        return max(self.max_weights, more)

    def postings_limit(self, n_labels: int) -> int | None:
        """Return the limit on labels per term; None keeps all."""
        return self.max_postings if n_labels > self.many_labels else None


def train_weights(
    queries: sp.csr_matrix,
    targets: sp.csr_matrix,
    first: sp.csr_matrix,
    filters: NDArray[np.int64] | None,
    config: LexicalConfig,
    seed: int,
    device: torch.device | str,
    until: float,
    log: Callable[[str], None],
    held_out: HeldOutTexts | None = None,
) -> sp.csr_matrix:
    """Scale and train the initial weights (L, V); see ``LexicalRanker.fit``."""
    n = queries.shape[0]
    positives = targets.nnz / max(1, n)
    candidates, max_terms = training_size(config, n, queries.nnz / max(1, n), positives)
    queries = keep_largest(queries, max_terms)
    limit = config.weights_limit(targets.shape[1])
    anchor = first * np.float32(SCALE)
    weights = anchor
    # Random order: when time runs out, the texts with hard negatives are a random sample.
    order = np.random.default_rng([seed, 1]).permutation(n)
    shuffled = queries[order]
    near = np.full((n, 0), -1, np.int64)
    for number, steps in enumerate(config.steps):
        last = number + 1 == len(config.steps)
        name = f"Lexical ranker: round {number + 1} of {len(config.steps)}"
        left = until - time.monotonic()
        if left <= 0:
            log(Detail(f"{name} skipped, no time left"))
            break
        by_term, halfway = sp.csr_matrix(weights.T), until - left / 2  # for mining at most half
        found = mine_hard_negatives(shuffled, by_term, candidates, device=device, until=halfway)
        fresh = np.full((n, found.shape[1]), -1, np.int64)
        fresh[order[: len(found)]] = found
        near = np.concatenate([near[:, : candidates // 2], fresh], axis=1)
        pattern = widen(weights, queries, fresh[:, : config.widening], limit)
        del by_term, weights  # each takes half a GiB of many weights
        own = values_at(anchor, pattern)
        result = descend(
            queries,
            pattern,
            own,
            pattern.data,
            training_pairs(targets, near, filters),
            steps=steps,
            decay=config.decay,
            device=device,
            until=until,
            better=held_out.comparison(pattern) if last and held_out is not None else None,
        )
        log(Detail(_report(name, result, steps, len(found), n, config.decay)))
        weights = sp.csr_matrix((result.weights, pattern.indices, pattern.indptr), pattern.shape)
        if held_out is not None and last:
            share = _go_best_way_(held_out, own, weights)
            if share != 1:
                log(Detail(f"{name}: {share:.2f} of the way is best for held-out texts"))
    return weights


def _go_best_way_(
    held_out: HeldOutTexts, anchor: NDArray[np.float32], weights: sp.csr_matrix
) -> float:
    """Change the weights to the best share of the way from the anchor, and return it."""
    share = held_out.best_share(anchor, weights, SHARES)
    if share != 1:
        weights.data = anchor + np.float32(share) * (weights.data - anchor)
    return share


def _report(name: str, result: DescentResult, steps: int, mined: int, n: int, decay: float) -> str:
    line = (
        f"{name}: loss {result.initial_loss / max(1, n):.4f} to {result.loss / max(1, n):.4f} "
        f"per text in {result.steps} steps (planned: {steps})"
    )
    if result.decay > decay:
        line += f"; decay {result.decay:g}, which is better for held-out texts"
    if mined < n:
        line += f"; warning: hard negatives for {mined:,} of {n:,} texts only, out of time"
    if result.stopped_by == "time":
        line += "; warning: stopped by the time limit"
    elif result.stopped_by == "divergence":
        line += "; warning: diverged, initial weights kept"
    elif result.converged:
        line += "; converged"
    return line


def training_size(config: LexicalConfig, n: int, terms: float, positives: float) -> tuple[int, int]:
    """Choose hard negatives per text and terms per text within ``max_products``.

    Args:
        config: Hyperparameters.
        n: Texts.
        terms: Terms of a text, on average.
        positives: Positives of a text, on average.

    Returns:
        Candidates, then terms.

    Example:
        >>> training_size(LexicalConfig(), 10_000, 20, 3)  # a limit far above 20 terms
        (100, 356)
        >>> training_size(LexicalConfig(), 100_000, 300, 5)
        (60, 56)
        >>> training_size(LexicalConfig(), 450_000, 20, 22)  # the best-scored labels are positives
        (76, 32)
    """
    room = config.max_products / max(1, n)
    fitting = int((room / max(1.0, terms) - positives) / PAIRS_PER_CANDIDATE)
    candidates = max(min(MIN_CANDIDATES, config.candidates), min(config.candidates, fitting))
    candidates += max(0, round(positives - USUAL_POSITIVES))
    return candidates, max(MIN_TERMS, int(room / (PAIRS_PER_CANDIDATE * candidates + positives)))


def training_pairs(
    targets: sp.csr_matrix, near: NDArray[np.int64], filters: NDArray[np.int64] | None
) -> LabelledPairs:
    """Join positives and hard negatives of the texts that have hard negatives.

    Args:
        targets: (N, L).
        near: (N, K) labels, -1 for padding.
        filters: (M, 2) pairs (text, label) to leave out.

    Returns:
        Pairs sorted by label, then text.
    """
    n = targets.shape[0]
    own = sp.csr_matrix(targets).tocoo()
    mined = np.asarray((near >= 0).any(axis=1))
    own_kept = mined[own.row]
    positives = np.sort(own.col[own_kept] * np.int64(n) + own.row[own_kept])
    keys = (near * np.int64(n) + np.arange(n)[:, None])[near >= 0]
    keys = sorted_unique(np.concatenate([keys, positives]))
    if filters is not None and len(filters):
        keys = keys[~np.isin(keys, filters[:, 1] * np.int64(n) + filters[:, 0])]
    return LabelledPairs(keys % n, keys // n, find_sorted(keys, positives)[1])
