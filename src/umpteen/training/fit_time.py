"""Time limits of the ensemble's fit: how many texts can be read, and whether a part still fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

SAMPLE_TEXTS = (400, 4000)
"""Texts that the time of reading is measured on: the first number, or one in 50 up to the second.
A few short texts say little of many: the vocabulary grows."""
SAMPLE_CHARACTERS = 1 << 20
"""Characters of that sample, at most."""
LEARNING_SHARE = 0.6
"""Of the seconds of the whole fit, for what retrievers learn; more where few texts are fitted."""
FOLDED_SHARE, ALONE_SHARE = 0.14, 0.9
"""The same before a cross-validation, whose five folds have retrievers too; and where no fold
fits."""
MIN_TEXTS = 1000
"""Texts that are read in any case."""
MIN_FITTED, ENOUGH_FITTED = 128, 300
"""Validation texts to fit on in any case; those below which not every variant is fitted."""
FIT_SECONDS = 0.005
"""Time to fit a variant to a validation text on a CPU, where it is not yet measured."""
VARIANTS = 6
"""Variants of an ensemble with all scorers."""


@dataclass(frozen=True)
class FitTime:
    """When a fit must be done, in ``time.monotonic``."""

    until: float
    strict: bool
    """Whether parts are reduced or left out to be done in time: the run has a time budget."""
    slack: float = 0.0
    """Seconds by which a part that cannot be cut may end late. Without it, the time of such a part
    would often be left over."""
    left_out: list[str] = field(default_factory=list, compare=False)
    """Why no more is done, in words: what there is no time for, or that all is done. Shared by the
    parts."""

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self.until - time.monotonic())

    def part(self, share: float) -> FitTime:
        """Return the limit of a part that may take this share of the time that is left."""
        until = time.monotonic() + share * self.left()
        return FitTime(until, self.strict, self.slack, self.left_out)

    def allows(self, seconds: float) -> bool:
        """Return whether something that takes this long can still be done."""
        return not self.strict or seconds <= self.left() + self.slack


def readable_rows(
    texts: Sequence[str], read: Callable[[list[str]], object], *, seconds: float, seed: int
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


def share_before_folds(limit: FitTime, training: float, texts: int) -> float:
    """Return the share of the time for the run's own retrievers, where folds may follow.

    Returns:
        A small share if a fold with its retrievers and its fit can follow, else nearly all.
    """
    if not limit.strict:
        return LEARNING_SHARE
    left = limit.left()
    needed = training + 2 * FOLDED_SHARE * left + texts * FIT_SECONDS
    return FOLDED_SHARE if needed <= left + limit.slack else ALONE_SHARE


def folds_in_time(
    seconds: float, *, done: int, most: int, fold: float, texts: int, fit: float, variants: int
) -> int:
    """Return how many folds of a cross-validation there is time for, the fits included.

    Args:
        seconds: The time that is left.
        done: Folds that are done.
        most: All folds.
        fold: Seconds of a fold.
        texts: Texts of a fold.
        fit: Seconds to fit one variant to a text.
        variants: How many there are. They are reduced before texts become too few.

    Returns:
        The number, with those that are done.

    Example:
        >>> plan = dict(done=0, most=5, fold=8.0, texts=112, fit=0.01, variants=6)
        >>> [folds_in_time(s, **plan) for s in (100, 60, 29, 10, 9)]
        [5, 4, 3, 1, 0]
    """
    left = seconds + done * fold

    def fitting(n_variants: int) -> int:
        return int(left / max(1e-9, fold + texts * fit * n_variants))

    every, enough = fitting(variants), -(-ENOUGH_FITTED // max(1, texts))
    if every < enough:
        every = min(enough, fitting(1))
    return max(done, min(most, every))
