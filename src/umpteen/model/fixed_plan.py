"""Plans of a few fixed sizes, so that what was recorded for one batch serves others of its size.

Tokens are filled up by texts nobody asked for, lists of texts and tiles by empty ones. All arrays
lie in one piece of memory, each at a place that follows from the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.packing import Packed

Array = NDArray[Any]
TOKEN_STEPS = 32
"""Sizes between a number of tokens and its double: what is filled up is 3 % at most."""
TILE_STEPS = 4
"""The same of tiles, of which those that fill up are empty."""
LEAST_STEP = 64
"""Few tokens are rounded up to multiples of this, and so many texts there is room for at least."""


@dataclass(frozen=True)
class Sizes:
    """How long the arrays of a plan are."""

    tokens: int
    texts: int
    tiles: tuple[tuple[int, int], ...]
    """For each kind of tile the most tokens it may have, and how many tiles there are."""

    @property
    def lengths(self) -> list[int]:
        """Of ids, places, texts, offsets, and the starts of each kind of tile."""
        return [self.tokens] * 3 + [self.texts + 1] + [count + 1 for _, count in self.tiles]

    @property
    def longest(self) -> int:
        """No text has more tokens."""
        return max(most for most, _ in self.tiles)

    def parts(self, flat: Tensor) -> list[Tensor]:
        """The arrays, in the order of ``lengths``, where ``flat`` holds them."""
        starts = places_in_one(self.lengths)[:-1]
        return [flat[start : start + n] for start, n in zip(starts, self.lengths, strict=True)]


def places_in_one(lengths: Sequence[int]) -> list[int]:
    """Where arrays of int32 start in one piece of memory, and where the last one stops.

    Each starts at a multiple of 128 bytes: kernels are compiled for how pointers are aligned.

    Example:
        >>> places_in_one([3, 33, 1])
        [0, 32, 96, 128]
    """
    return [0, *np.cumsum([-(-n // 32) * 32 for n in lengths]).tolist()]


def rounded(n: int, steps: int, least_step: int = 1) -> int:
    """The next of the numbers of which there are ``steps`` between one and its double.

    Example:
        >>> [rounded(n, 4) for n in (4, 5, 8, 9, 17, 1001)]
        [4, 5, 8, 10, 20, 1024]
        >>> rounded(47_500, 32)
        48128
    """
    step = max(least_step, (1 << (n.bit_length() - 1)) // steps)
    return -(-n // step) * step


def filled_up(packed: Packed, cut: dict[int, Array]) -> tuple[Sizes, list[Array]] | None:
    """The arrays of a plan in fixed sizes; its first texts and tokens are those of ``packed``.

    Args:
        packed: M texts of N tokens.
        cut: Tiles that hold every token, see ``compute.packing.tiles``.

    Returns:
        The sizes and the arrays in their order; None for texts so short that there are too many.
    """
    real, n_texts = len(packed.ids), len(packed.offsets) - 1
    tokens = rounded(real, TOKEN_STEPS, LEAST_STEP)
    texts = tokens // 3 + LEAST_STEP
    longest = max(cut)
    # Further texts, as long as a tile, each in one of its own behind the last tiles.
    ends = np.minimum(np.arange(real, tokens, longest) + longest, tokens)
    if n_texts + len(ends) > texts:
        return None
    starts = {**cut, longest: np.append(cut[longest], ends)}
    counts = {size: rounded(len(own) - 1, TILE_STEPS) for size, own in starts.items()}
    extra = np.arange(tokens - real)
    arrays = [
        _longer(packed.ids, tokens, 0),
        _longer(packed.places, tokens, 0),
        np.concatenate([packed.texts, n_texts + extra // longest]),
        _longer(np.append(packed.offsets, ends), texts + 1, tokens),
    ]
    arrays += [_longer(own, counts[size] + 1, own[-1]) for size, own in starts.items()]
    return Sizes(tokens, texts, tuple(counts.items())), arrays


def _longer(array: Array, n: int, value: int) -> Array:
    return np.concatenate([array, np.full(n - len(array), value, array.dtype)])
