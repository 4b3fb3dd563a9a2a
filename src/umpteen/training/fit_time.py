"""Time limits of the ensemble's fit: how many texts can be read, and whether a part still fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAMPLE_TEXTS = 400
SAMPLE_CHARACTERS = 1 << 20
"""Texts and characters that the time of reading is measured on, at most."""
MIN_TEXTS = 1000
"""Texts that are read in any case."""


@dataclass(frozen=True)
class FitTime:
    """When a fit must be done, in ``time.monotonic``."""

    until: float
    strict: bool
    """Whether parts are reduced or left out to be done in time: the run has a time budget."""

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self.until - time.monotonic())

    def part(self, share: float) -> FitTime:
        """Return the limit of a part that may take this share of the time that is left."""
        return FitTime(time.monotonic() + share * self.left(), self.strict)

    def allows(self, seconds: float) -> bool:
        """Return whether something that takes this long can still be done."""
        return not self.strict or seconds <= self.left()


def readable_rows(
    texts: Sequence[str],
    read: Callable[[list[str]], object],
    *,
    seconds: float,
    seed: int,
) -> NDArray[np.int64]:
    """Return the rows of as many texts as can be read in a time, drawn at random.

    Args:
        texts: All texts.
        read: Reads some texts; timed on a small sample. Time is taken to grow with characters.
        seconds: The time.
        seed: Of the sample.

    Returns:
        Sorted rows, all of them where there is time for all.
    """
    n = len(texts)
    order = np.random.default_rng([seed, 0xB1D]).permutation(n)
    sample: list[str] = []
    characters = 0
    for row in order[:SAMPLE_TEXTS].tolist():
        sample.append(texts[row])
        characters += len(texts[row])
        if characters > SAMPLE_CHARACTERS:
            break
    if len(sample) < n:
        read(sample[: len(sample) // 8 + 1])  # the first call loads and compiles
    started = time.monotonic()
    read(sample)
    each = (time.monotonic() - started) / max(1, characters)
    fitting = int(n * min(1.0, seconds / max(1e-9, each * sum(map(len, texts)))))
    return np.sort(order[: max(fitting, min(n, MIN_TEXTS))])
