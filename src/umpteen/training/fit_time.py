"""Time limits of the ensemble's fit: how many texts can be read, and whether a part still fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAMPLE_TEXTS = (400, 4000)
"""Texts that the time of reading is measured on: the first number, or one in 50 up to the second.
A few short texts say little of many: the vocabulary grows."""
SAMPLE_CHARACTERS = 1 << 20
"""Characters of that sample, at most."""
MIN_TEXTS = 1000
"""Texts that are read in any case."""
MIN_FITTED, ENOUGH_FITTED = 128, 300
"""Validation texts to fit on in any case; those below which not every variant is fitted."""


@dataclass(frozen=True)
class FitTime:
    """When a fit must be done, in ``time.monotonic``."""

    until: float
    strict: bool
    """Whether parts are reduced or left out to be done in time: the run has a time budget."""
    slack: float = 0.0
    """Seconds by which a part that cannot be cut may end late. Without it, the time of such a part
    would often be left over."""

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self.until - time.monotonic())

    def part(self, share: float) -> FitTime:
        """Return the limit of a part that may take this share of the time that is left."""
        return FitTime(time.monotonic() + share * self.left(), self.strict, self.slack)

    def allows(self, seconds: float) -> bool:
        """Return whether something that takes this long can still be done."""
        return not self.strict or seconds <= self.left() + self.slack


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
    fewest, most = SAMPLE_TEXTS
    for row in order[: min(most, max(fewest, n // 50))].tolist():
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


def texts_in_time(seconds: float, *, collect: float, fit: float, variants: int) -> int:
    """Return how many validation texts can be fitted in a time.

    Args:
        seconds: The time.
        collect: Seconds to collect the candidates of a text.
        fit: Seconds to fit one variant to a text.
        variants: How many there are. They are reduced before texts become too few.

    Returns:
        At least ``MIN_FITTED``.

    Example:
        >>> [texts_in_time(s, collect=0.01, fit=0.01, variants=4) for s in (100, 10, 4, 1)]
        [2000, 300, 200, 128]
    """
    every = int(seconds / max(1e-9, collect + variants * fit))
    if every < ENOUGH_FITTED:
        every = min(ENOUGH_FITTED, int(seconds / max(1e-9, collect + fit)))
    return max(MIN_FITTED, every)
