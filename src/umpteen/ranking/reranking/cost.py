"""Measure what re-ranking a text costs, and choose how many candidates fit a budget."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from umpteen.data.labels import LabelSet
from umpteen.ranking.candidates import Candidates
from umpteen.ranking.reranking.reranker import Reranker
from umpteen.ranking.reranking.shortlist import shortlist
from umpteen.ranking.reranking.spec import Cost
from umpteen.ranking.variants import Variant

TIMED_TEXTS = 24
"""Texts that are timed one by one; the median counts."""
FEW = 5
"""Candidates of the shorter of the two lists that are timed."""


def measure_cost(
    reranker: Reranker,
    labels: LabelSet,
    texts: Sequence[str],
    found: Candidates,
    variant: Variant,
    n: int,
) -> Cost:
    """Time the re-ranking of single texts with few and with n candidates."""
    device = found.rows.device
    sizes = [min(FEW, n), n]
    times: list[list[float]] = [[], []]
    for position in range(min(TIMED_TEXTS, len(texts)) + 1):
        place = max(0, position - 1)  # the first is called once more, before anything is timed
        one = found.select(torch.tensor([place], device=device))
        base = variant.weights.scores(one)
        for column, size in enumerate(sizes):
            started = time.perf_counter()
            chosen = shortlist(one, base, base, size)
            reranker.scores([texts[place]], labels, one, chosen)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if position:
                times[column].append(time.perf_counter() - started)
    if not times[0]:
        return Cost(0.0, 0.0, device.type)
    return fit_cost(sizes, [statistics.median(own) for own in times], device.type)


def fit_cost(sizes: Sequence[int], seconds: Sequence[float], device: str) -> Cost:
    """Fit a line through times of texts with different numbers of candidates.

    Example:
        >>> cost = fit_cost([10, 50], [0.001, 0.003], "cpu")
        >>> round(cost.fixed_ms, 3), round(cost.candidate_ms, 3)
        (0.5, 0.05)
    """
    (few, many), (short, long) = sizes, seconds
    each = max(0.0, 1000.0 * (long - short) / max(1, many - few))
    return Cost(max(0.0, 1000.0 * short - each * few), each, device)
