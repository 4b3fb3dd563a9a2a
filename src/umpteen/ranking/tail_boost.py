"""Choose how much rare labels are boosted: better PSP for a bounded loss of precision.

The boost is a factor of the logarithm of the label's inverse propensity, added to the score. The
chosen factor has the best mean of PSP@1, PSP@3 and PSP@5, each relative to its value without boost,
while P@1, P@3 and P@5 lose at most ``MAX_LOSS`` on average.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.ranking.candidates import pad, take, top_k

DEPTHS = (1, 3, 5)
BOOSTS = tuple(step / 40 for step in range(61))
"""Factors that are tried, ascending."""
MAX_LOSS = 0.003
"""Share of precision that the boost may cost."""
UNCERTAINTY = 0.25
"""Standard deviation of an expected loss, as a share of it."""
MIN_QUERIES = 50
"""Below this many queries there is no boost."""


def log_inverse_propensities(counts: Tensor, n_train: int, a: float, b: float) -> Tensor:
    """Compute the logarithm of ``metrics.propensity.inverse_propensities`` on a tensor."""
    scale = max(0.0, np.log(max(1, n_train)) - 1.0) * (b + 1.0) ** a
    given = counts if counts.is_floating_point() else counts.float()
    return torch.log1p(scale * (given + b) ** -a)


def choose_tail_boost(
    scores: Tensor, rows: Tensor, rarity: Tensor, probabilities: Tensor, positive: Tensor
) -> float:
    """Choose the boost; the smallest of equally good ones.

    No larger boost is tried after one that costs too much precision.

    Args:
        scores: (B, K) cross-fitted, without boost.
        rows: (B, K) of the candidates.
        rarity: (B, K) logarithm of the labels' inverse propensity.
        probabilities: (B, K) cross-fitted, without boost.
        positive: (B, K) which are right.

    Returns:
        One of ``BOOSTS``.
    """
    if len(rows) < MIN_QUERIES or not rows.shape[1]:
        return BOOSTS[0]
    scores, rarity = scores.double(), rarity.double()
    near = _compact(within_reach(scores, rows, rarity))
    scores, rarity = take(scores, near, -torch.inf), take(rarity, near, 0.0)
    chance, rows = take(probabilities.double(), near, 0.0), take(rows, near, -1)
    right = take(positive.double(), near, 0.0)
    values = (chance, right, right * rarity.exp())
    plain: list[NDArray[np.float64]] = []
    best, highest = BOOSTS[0], 1.0
    for boost in BOOSTS:
        first = top_k(scores + boost * rarity, rows, DEPTHS[-1])
        now = [_sums(each, first) for each in values]
        plain = plain or now
        if expected_loss(_losses(plain[0], now[0]), _losses(plain[1], now[1])) > MAX_LOSS:
            break
        gain = 1.0 - float(_losses(plain[2], now[2]).sum())
        if gain > highest:
            best, highest = boost, gain
    return best


def expected_loss(expected: NDArray[np.float64], counted: NDArray[np.float64]) -> float:
    """Combine the loss expected from probabilities with the loss that was counted.

    The right answers that a boost gains and loses are few, and their difference is mostly noise.
    Probabilities are less noisy, but may be biased. The counted loss has the more weight the
    smaller its variance.

    Args:
        expected: (N,) what each query adds to the loss by the probabilities of its answers.
        counted: (N,) the same by its right answers.

    Returns:
        The loss; negative for a gain.

    Example:
        >>> expected = np.full(100, 0.00004)
        >>> round(expected_loss(expected, np.full(100, 0.00002)), 5)  # no variance
        0.002
        >>> noisy = np.tile([0.01, -0.00996], 50)
        >>> round(expected_loss(expected, noisy), 4)
        0.004
    """
    foreseen, seen = float(expected.sum()), float(counted.sum())
    doubt = (UNCERTAINTY * foreseen) ** 2
    noise = float(counted.var()) * len(counted)
    weight = doubt / (doubt + noise) if doubt + noise > 0 else 0.0
    return foreseen + weight * (seen - foreseen)


def within_reach(scores: Tensor, rows: Tensor, rarity: Tensor) -> Tensor:
    """Find the candidates that are among the first five at some boost.

    The others have five candidates above them that even the largest boost does not overtake.

    Args:
        scores: (B, K).
        rows: (B, K).
        rarity: (B, K).

    Returns:
        (B, K) bool.
    """
    valid = rows >= 0
    fifth = take(scores, top_k(scores, rows, DEPTHS[-1])[:, -1:], -torch.inf)
    lowest = torch.where(valid, rarity, torch.inf).amin() if rows.numel() else 0.0
    highest = scores + BOOSTS[-1] * (rarity - lowest)
    return valid & (highest >= fifth - 1e-9)


def _compact(kept: Tensor) -> Tensor:
    """Return the (B, W) positions of True, ascending, -1 at the end."""
    width = max(DEPTHS[-1], int(kept.sum(dim=1).max()))
    places = kept.to(torch.int8).sort(dim=1, descending=True, stable=True)
    positions = torch.where(places.values > 0, places.indices, -1)[:, :width]
    return pad(positions, width, -1)


def _sums(values: Tensor, first: Tensor) -> NDArray[np.float64]:
    """Return the (N, 3) sums over the first one, three and five candidates of each query."""
    sums = take(values, first, 0.0).cumsum(dim=1)
    return sums[:, [depth - 1 for depth in DEPTHS]].cpu().numpy()


def _losses(plain: NDArray[np.float64], now: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (N,) parts of the mean relative loss over the three depths."""
    total = plain.sum(axis=0)
    return ((plain - now) / np.where(total > 0, total, 1.0)).mean(axis=1)
