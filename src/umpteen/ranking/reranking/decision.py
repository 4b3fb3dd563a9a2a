"""Decide on texts that nothing was trained on: weight of the re-ranker, early exit, and its use."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.ranking.candidates import Candidates, take, top_k
from umpteen.ranking.features import log_shares
from umpteen.ranking.reranking.listwise import text_losses
from umpteen.ranking.reranking.reranker import spread
from umpteen.ranking.reranking.shortlist import Shortlist
from umpteen.ranking.tail_boost import DEPTHS

WEIGHTS = tuple(step / 10 for step in range(21))
"""Factors of the re-ranker's score that are tried."""
SHARES = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03)
"""Shares of the ensemble's softmax below which candidates are left out, ascending."""
KEPT_GAIN = 0.98
"""Of the gain, what early exit must keep."""
MAX_P_VALUE = 0.05
"""Of the paired test, above which the stage is not used."""
FOLDS = 5


@dataclass(frozen=True)
class Reranked:
    """Candidates of labelled texts with the scores of ensemble and re-ranker."""

    found: Candidates
    scores: Tensor
    """(B, K) of the ensemble, tail boost included."""
    base: Tensor
    """(B, K) of the ensemble without tail boost."""
    chosen: Shortlist
    values: Tensor
    """(B, n) of the re-ranker."""
    positive: Tensor
    """(B, K) which are right."""
    rarity: Tensor
    """(B, K) logarithm of each label's inverse propensity."""

    def added(self, weight: float, min_share: float = 0.0) -> Tensor:
        """(B, K) what re-ranking adds with a weight and an early exit."""
        chosen = self.chosen
        if min_share > 0:
            shares = take(log_shares(self.scores, self.found.valid), chosen.places, -torch.inf)
            kept = chosen.valid & (shares.exp() >= min_share)
            kept &= kept.sum(dim=1, keepdim=True) > 1
            chosen = Shortlist(torch.where(kept, chosen.places, -1), chosen.rows, chosen.base)
        return spread(weight * self.values.to(self.scores.dtype), chosen, self.found.valid)

    def reranked(self, min_share: float) -> float:
        """Return the mean number of candidates of a text that are re-ranked."""
        shares = take(log_shares(self.scores, self.found.valid), self.chosen.places, -torch.inf)
        kept = self.chosen.valid & (shares.exp() >= min_share)
        kept &= kept.sum(dim=1, keepdim=True) > 1
        return float(kept.sum(dim=1).double().mean()) if len(kept) else 0.0


@dataclass(frozen=True)
class Decision:
    """Whether and how the re-ranker is used."""

    weight: float
    min_share: float
    p_value: float
    gain: float
    """Relative gain of precision and propensity-scored precision, percent."""
    n_texts: int

    @property
    def kept(self) -> bool:
        """Whether the gain is more than chance."""
        return self.weight > 0 and self.gain > 0 and self.p_value <= MAX_P_VALUE


def decide(parts: list[Reranked], seed: int) -> Decision:
    """Choose the weight by loss, test the gain, and find how early texts may exit.

    The gain is cross-fitted: each text is judged with the weight of the other folds.
    """
    losses = np.concatenate([_losses(part) for part in parts])  # (N, weights)
    n = len(losses)
    if not n:
        return Decision(0.0, 0.0, 1.0, 0.0, 0)
    folds = np.random.default_rng([seed, 0xDEC]).permutation(n) % min(FOLDS, max(2, n))
    of_text = np.zeros(n, np.int64)
    for fold in np.unique(folds):
        of_text[folds == fold] = int(np.argmin(losses[folds != fold].sum(axis=0)))
    weight = WEIGHTS[int(np.argmin(losses.sum(axis=0)))]
    before = np.concatenate([quality(part, part.scores) for part in parts])
    tried = {
        index: np.concatenate(
            [quality(part, part.scores + part.added(WEIGHTS[index])) for part in parts]
        )
        for index in np.unique(of_text)
    }
    after = np.choose(np.searchsorted(sorted(tried), of_text), [tried[i] for i in sorted(tried)])
    gains = after - before
    kept = _early_exit(parts, weight, float(np.mean(gains)), before)
    return Decision(weight, kept, paired_p_value(gains), 100.0 * float(np.mean(gains)), n)


def quality(part: Reranked, scores: Tensor) -> NDArray[np.float64]:
    """Return (B,) how good the first labels of each text are.

    The mean of precision and propensity-scored precision at 1, 3 and 5, the latter relative to
    the best possible of all texts together.
    """
    places = top_k(scores, part.found.rows, max(DEPTHS))
    hits = take(part.positive.double(), places, 0.0)
    gains = hits * take(part.rarity.double().exp(), places, 0.0)
    rare = torch.where(part.positive, part.rarity.double().exp(), 0.0)
    best = rare.sort(dim=1, descending=True).values[:, : max(DEPTHS)]
    total = torch.zeros(len(hits), dtype=torch.float64, device=hits.device)
    for k in DEPTHS:
        norm = best[:, :k].sum(dim=1).mean().clamp_min(1e-9)
        total += hits[:, :k].sum(dim=1) / k + gains[:, :k].sum(dim=1) / norm
    return (total / (2 * len(DEPTHS))).cpu().numpy()


def paired_p_value(gains: NDArray[np.float64]) -> float:
    """Return the one-sided p-value of a mean above 0, by the normal approximation.

    Example:
        >>> paired_p_value(np.array([1.0, 0.0, 0.0, -1.0]))
        0.5
        >>> paired_p_value(np.array([0.0, 0.0]))
        1.0
    """
    spread_of = float(np.std(gains, ddof=1)) if len(gains) > 1 else 0.0
    if spread_of == 0.0:
        return 0.0 if len(gains) > 1 and gains[0] > 0 else 1.0
    z = float(np.mean(gains)) / (spread_of / math.sqrt(len(gains)))
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def _losses(part: Reranked) -> NDArray[np.float64]:
    """(B, weights) listwise loss of each text."""
    columns = []
    for weight in WEIGHTS:
        scores = part.base + part.added(weight)
        losses, _ = text_losses(scores.double(), part.positive, part.found.valid)
        columns.append(losses.cpu().numpy())
    return np.stack(columns, axis=1)


def _early_exit(
    parts: list[Reranked], weight: float, gain: float, before: NDArray[np.float64]
) -> float:
    """Return the largest share to leave candidates out below that keeps the gain."""
    if gain <= 0 or weight == 0:
        return 0.0
    found = 0.0
    whole = None
    for share in SHARES:
        after = [quality(part, part.scores + part.added(weight, share)) for part in parts]
        own = float(np.mean(np.concatenate(after) - before))
        whole = own if whole is None else whole
        if own < KEPT_GAIN * whole:
            break
        found = share
    return found
