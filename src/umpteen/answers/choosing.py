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
"""Share of a precision that rare labels may cost, beside one answer."""
RULE = (
    "the tilt: the best mean of PSP@1, PSP@3 and PSP@5, each over its value without tilt, while "
    "P@1, P@3 and P@5 each lose at most 0.3 % of their value without tilt and one right answer, "
    "and do not fall below the best single part; the parts: the mean of P@1, P@3, P@5, PSP@1, "
    "PSP@3 and PSP@5, each over its value for the best head alone, less every shortfall "
    "below that head; all parts unless leaving some out gains more than 0.5 over the root of the "
    "number of queries and no precision loses more than a tilt may cost; all cross-fitted on "
    "held-out queries"
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


def chosen_way(
    ways: Sequence[dict[str, float]], reference: dict[str, float], n_queries: int
) -> int:
    """Which way is the default: the first, unless another gains more than chance would.

    Args:
        ways: Metrics of each, all parts first.
        reference: Those of the best head alone.
        n_queries: Held-out queries they were judged on.

    Returns:
        The place.

    Example:
        >>> reference = dict.fromkeys(METRICS, 40.0)
        >>> first, second = dict.fromkeys(METRICS, 44.0), dict.fromkeys(METRICS, 44.8)
        >>> chosen_way([first, second], reference, 400)  # better by 0.02 of 0.025
        0
        >>> chosen_way([first, second], reference, 10_000)
        1
        >>> chosen_way([first, {**second, "P@3": 43.7}], reference, 10_000)
        0
    """
    least = kept(ways[0], n_queries)
    values = [
        better(way, reference) if all(way[name] >= low for name, low in least.items()) else -np.inf
        for way in ways
    ]
    best = int(np.argmax(values))
    margin = 0.5 / np.sqrt(max(1, n_queries))
    return best if values[best] - values[0] > margin else 0


def kept(plain: dict[str, float], n_queries: int) -> dict[str, float]:
    """What each precision must keep when rare labels are favoured, in percent.

    Args:
        plain: Where they are not.
        n_queries: Of which one may lose one right answer, beside the share ``GIVEN_UP`` of all.

    Returns:
        For each precision.

    Example:
        >>> plain = dict.fromkeys(METRICS, 50.0)
        >>> {name: round(low, 2) for name, low in kept(plain, 200).items()}
        {'P@1': 49.35, 'P@3': 49.68, 'P@5': 49.75}
    """
    one = {name: 100.0 / (max(1, n_queries) * int(name[2:])) for name in METRICS[:3]}
    return {name: (1 - GIVEN_UP) * plain[name] - one[name] for name in one}


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
        if any(
            values[name] < floor
            for name, floor in floors(plain, singles, candidates.n_queries).items()
        ):
            failed += 1
            if failed == 2:
                break
            continue
        failed = 0
        gained = float(relative(values, plain)[-3:].mean())
        if gained > most:
            best, most = tilt, gained
    return best


def floors(plain: dict[str, float], singles: dict[str, float], n_queries: int) -> dict[str, float]:
    """What each precision must keep when a tilt favours rare labels.

    Args:
        plain: Metrics without tilt.
        singles: The best that a part has alone.
        n_queries: Held-out queries they were judged on.

    Returns:
        For each precision.

    Example:
        >>> plain, singles = dict.fromkeys(METRICS, 50.0), dict.fromkeys(METRICS, 49.0)
        >>> round(floors(plain, singles, 2000)["P@1"], 3)
        49.8
        >>> floors(plain, {**singles, "P@3": 60.0}, 2000)["P@3"]
        50.0
    """
    least = kept(plain, n_queries)
    return {name: max(low, min(plain[name], singles[name])) for name, low in least.items()}
