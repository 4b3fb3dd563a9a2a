"""Successive halving: which trials come next, and who has won so far. Numbers only, no training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KEPT = 3
"""One of so many goes on to the next rung, with so many times the epochs."""
RUNGS = 2


@dataclass(frozen=True)
class Trial:
    """One candidate trained for some epochs, and its metric on validation."""

    candidate: int
    rung: int
    value: float


def rungs_of(epochs: int) -> list[int]:
    """Epochs of the trials of each rung, for a run of so many; fewer than the run's own.

    Example:
        >>> rungs_of(30), rungs_of(5), rungs_of(1)
        ([4, 10], [1, 2], [1])
    """
    found = [-(-epochs // KEPT ** (RUNGS - rung)) for rung in range(RUNGS)]
    return sorted({each for each in found if each < epochs}) or [1]


def entrants(candidates: int, trials: Sequence[Trial], rung: int) -> list[int]:
    """Candidates of a rung, the best of the one below first; all of them for the first rung.

    Args:
        candidates: How many there are.
        trials: Those that are done; the rung below must be among them.
        rung: From 0.

    Returns:
        Positions of candidates; the best third of the rung below, but at least two.
    """
    if rung == 0:
        return list(range(candidates))
    before = ranked(trials, rung - 1)
    return before[: max(2, -(-len(before) // KEPT))]


def ranked(trials: Sequence[Trial], rung: int) -> list[int]:
    """Candidates with a result in a rung, the best first; ties go to the earlier candidate."""
    own = sorted((-t.value, t.candidate) for t in trials if t.rung == rung)
    return [candidate for _, candidate in own]


def winner(trials: Sequence[Trial]) -> int:
    """The best candidate of the highest rung in which two can be compared; the first without any.

    Example:
        >>> winner([Trial(0, 0, 50.0), Trial(1, 0, 52.0), Trial(1, 1, 60.0)])
        1
    """
    for rung in sorted({trial.rung for trial in trials}, reverse=True):
        order = ranked(trials, rung)
        if len(order) > 1 or rung == 0:
            return order[0]
    return 0
