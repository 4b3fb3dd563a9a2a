"""The rule by which a fusion is chosen on validation: precision and rare labels count alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umpteen.answers.candidates import Candidates, first_places

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
DEPTHS = (1, 3, 5)
TILTS = tuple(step / 40 for step in range(61))
GIVEN_UP = 0.003
"""Share of precision that rare labels may cost."""
DOUBT = 0.25
"""How far off an expected loss is thought to be (one standard deviation), as a share of it."""
RULE = (
    "the tilt: the best mean of PSP@1, PSP@3 and PSP@5, each over its value without tilt, while "
    "P@1, P@3 and P@5, each over its value without tilt, lose at most 0.3 % on average: the loss "
    "that the answers' probabilities lead one to expect, and the right answers that were lost, "
    "weighed by how sure each is; the parts: the mean of P@1, P@3, P@5, PSP@1, "
    "PSP@3 and PSP@5, each over its value for the best head alone, less every shortfall "
    "below that head; all parts unless leaving some out gains more than 3 over the root of the "
    "number of queries and no precision loses more than 0.3 % and one right answer; all "
    "cross-fitted on held-out queries"
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
        >>> chosen_way([first, second], reference, 20_000)  # better by 0.02 of 0.0212
        0
        >>> chosen_way([first, second], reference, 40_000)
        1
        >>> chosen_way([first, {**second, "P@3": 43.7}], reference, 40_000)
        0
    """
    least = kept(ways[0], n_queries)
    values = [
        better(way, reference) if all(way[name] >= low for name, low in least.items()) else -np.inf
        for way in ways
    ]
    best = int(np.argmax(values))
    # Ways differ by 0.5 to 1 over the root by chance, and the best of five by more. What was left
    # out on one half of held-out queries brought nothing on the other.
    margin = 3.0 / np.sqrt(max(1, n_queries))
    return best if values[best] - values[0] > margin else 0


def kept(plain: dict[str, float], n_queries: int) -> dict[str, float]:
    """What each precision must keep where parts are left out, in percent.

    Args:
        plain: Where none is.
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
    probabilities: NDArray[np.float64],
    positive: NDArray[np.bool_],
) -> float:
    """The tilt towards rare labels that is best by ``RULE``; the smallest of equals.

    No larger tilt is tried after one that costs too much precision.

    Args:
        scores: (C,) cross-fitted.
        candidates: The pairs.
        rarity: (C,) logarithm of the label's inverse propensity.
        probabilities: (C,) of the scores without tilt, cross-fitted.
        positive: (C,) which are right.

    Returns:
        One of ``TILTS``.
    """
    kept = within_reach(scores, candidates, rarity)
    near = Candidates(candidates.queries[kept], candidates.rows[kept], {}, candidates.n_queries)
    scores, rarity = scores[kept], rarity[kept]
    said, right = probabilities[kept], positive[kept].astype(np.float64)
    worth = right * np.exp(rarity)
    plain: list[NDArray[np.float64]] = []
    best, most = TILTS[0], 1.0
    for tilt in TILTS:
        first = first_places(scores + tilt * rarity, near, DEPTHS[-1])
        now = [_found(values, first) for values in (said, right, worth)]
        plain = plain or now
        if loss(_lost(plain[0], now[0]), _lost(plain[1], now[1])) > GIVEN_UP:
            break
        gained = 1.0 - float(_lost(plain[2], now[2]).sum())
        if gained > most:
            best, most = tilt, gained
    return best


def loss(expected: NDArray[np.float64], counted: NDArray[np.float64]) -> float:
    """The share of precision that a tilt costs, by what is expected and what was counted.

    Right answers that a tilt gains and loses are few, and their difference is mostly chance: with
    1,500 queries it is uncertain by as much as a tilt may cost. Probabilities hardly vary, but
    all err alike. The counted loss weighs the more the smaller its chance.

    Args:
        expected: (N,) what each query adds to the loss by the probabilities of its answers.
        counted: (N,) the same by its right answers.

    Returns:
        Below 0 for a gain.

    Example:
        >>> expected = np.full(100, 0.00004)
        >>> round(loss(expected, np.full(100, 0.00002)), 5)  # no chance in it
        0.002
        >>> chance = np.tile([0.01, -0.00996], 50)
        >>> round(loss(expected, chance), 4)  # as uncertain as it could be
        0.004
    """
    foreseen, seen = float(expected.sum()), float(counted.sum())
    doubt = (DOUBT * foreseen) ** 2
    chance = float(counted.var()) * len(counted)
    weight = doubt / (doubt + chance) if doubt + chance > 0 else 0.0
    return foreseen + weight * (seen - foreseen)


def within_reach(
    scores: NDArray[np.float64], candidates: Candidates, rarity: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """(C,) which candidates can be among the first five at some tilt.

    The others have five above them without tilt that even the largest tilt does not overtake.
    """
    first = first_places(scores, candidates, DEPTHS[-1])[:, -1]
    least = np.where(first >= 0, np.append(scores, 0.0)[first], -np.inf)
    lowest = float(rarity.min(initial=np.inf))
    highest = scores + TILTS[-1] * (rarity - lowest) if len(scores) else scores
    return highest >= least[candidates.queries] - 1e-9


def _found(values: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """(N, 3) what the first one, three and five candidates of each query add up to."""
    sums = np.append(values, 0.0)[first].cumsum(axis=1)
    return sums[:, [depth - 1 for depth in DEPTHS]]


def _lost(plain: NDArray[np.float64], now: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) what each query adds to the mean relative loss over the three depths."""
    total = plain.sum(axis=0)
    return ((plain - now) / np.where(total > 0, total, 1.0)).mean(axis=1)
