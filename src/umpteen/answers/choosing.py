"""The rule by which a fusion is chosen on validation: precision and rare labels count alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from umpteen.answers.candidates import Candidates, best_candidates
from umpteen.types import TopK

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
TILTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.25, 1.5)
GIVEN_UP = 0.003
"""Share of a precision that a tilt may cost."""
RULE = (
    "the tilt: the best mean of PSP@1, PSP@3 and PSP@5, each over its value without tilt, while "
    "P@1, P@3 and P@5 each lose at most 0.3 % of their value without tilt and do not fall below "
    "the best single part; the parts: the mean of P@1, P@3, P@5, "
    "PSP@1, PSP@3 and PSP@5, each over its value for the best head alone, less every shortfall "
    "below that head; all parts unless leaving some out gains more than 0.5 over the root of the "
    "number of queries; all cross-fitted on held-out queries"
)


def relative(values: dict[str, float], reference: dict[str, float]) -> NDArray[np.float64]:
    """Each metric over its reference; 1 where the reference is 0."""
    return np.array(
        [values[m] / reference[m] if reference[m] > 0 else 1.0 for m in METRICS], np.float64
    )


def better(values: dict[str, float], reference: dict[str, float]) -> float:
    """How good a way is by ``RULE``; higher is better.

    Example:
        >>> gained = dict.fromkeys(METRICS, 44.0)
        >>> reference = dict.fromkeys(METRICS, 40.0)
        >>> round(better(gained, reference), 3)
        1.1
        >>> round(better({**gained, "PSP@1": 39.0}, reference), 3)  # 5.975 / 6 - 0.025
        1.054
    """
    ratios = relative(values, reference)
    return float(ratios.mean() - np.maximum(0.0, 1.0 - ratios).sum())


def chosen_way(values: Sequence[float], n_queries: int) -> int:
    """Which way is the default: the first, unless another gains more than chance would.

    Args:
        values: By ``better``, all parts first.
        n_queries: Held-out queries they were judged on.

    Returns:
        The place.

    Example:
        >>> chosen_way([1.10, 1.12], 400), chosen_way([1.10, 1.12], 10_000)
        (0, 1)
    """
    best = int(np.argmax(values))
    margin = 0.5 / np.sqrt(max(1, n_queries))
    return best if values[best] - values[0] > margin else 0


def tilted(
    scores: NDArray[np.float64],
    candidates: Candidates,
    rarity: NDArray[np.float64],
    judge: Callable[[TopK], dict[str, float]],
    singles: dict[str, float],
) -> float:
    """The tilt towards rare labels that is best by ``RULE``; the smallest of equals.

    No larger tilt is tried after two in a row that cost too much precision.

    Args:
        scores: (C,) cross-fitted.
        candidates: The pairs.
        rarity: (C,) logarithm of the label's inverse propensity.
        judge: From answers to metrics.
        singles: The best value of each metric that a part has alone. Where the fused answer
            is below it without any tilt, it is not asked for.

    Returns:
        One of ``TILTS``.
    """
    plain: dict[str, float] = {}
    best, most, failed = TILTS[0], 1.0, 0
    for tilt in TILTS:
        leaning = scores + tilt * rarity
        values = judge(best_candidates(leaning, leaning, candidates, 5))
        plain = plain or values
        if any(values[name] < floor for name, floor in floors(plain, singles).items()):
            failed += 1
            if failed == 2:
                break
            continue
        failed = 0
        gained = float(relative(values, plain)[-3:].mean())
        if gained > most:
            best, most = tilt, gained
    return best


def floors(plain: dict[str, float], singles: dict[str, float]) -> dict[str, float]:
    """What each precision must keep when rare labels are favoured.

    Args:
        plain: Metrics without tilt.
        singles: The best that a part has alone.

    Returns:
        For each precision.

    Example:
        >>> plain, singles = dict.fromkeys(METRICS, 50.0), dict.fromkeys(METRICS, 49.0)
        >>> round(floors(plain, singles)["P@1"], 3), floors(plain, {**singles, "P@3": 60.0})["P@3"]
        (49.85, 50.0)
    """
    return {
        name: max((1 - GIVEN_UP) * plain[name], min(plain[name], singles[name]))
        for name in METRICS[:3]
    }
