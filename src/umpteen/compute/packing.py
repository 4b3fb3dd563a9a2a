"""Texts in one ragged sequence: repeats left out, sorted by length, cut into tiles. On the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.types import Ragged

Array = NDArray[Any]
TILES = (64, 128)
"""Tokens of a tile; a text goes to the smallest that it fits."""
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2 ** 64 over the golden ratio, a common multiplier of hashes."""


@dataclass(frozen=True)
class Packed:
    """Different texts one after the other, the shortest first."""

    ids: Array
    """(N,) int64 token ids."""
    offsets: Array
    """(M + 1,) int64, where each of the M texts starts."""
    back: Array | None
    """(B,) int64, which of the M texts each of the caller's is; None where they are the same."""

    @property
    def lengths(self) -> Array:
        """(M,) tokens of each text, ascending."""
        return np.diff(self.offsets)

    @property
    def texts(self) -> Array:
        """(N,) int32, which text a token belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), self.lengths)

    @property
    def places(self) -> Array:
        """(N,) int64, how many tokens of its text come before a token."""
        return np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)


def pack(tokens: Ragged) -> Packed:
    """Leave out repeated texts and sort the others by length.

    Equals encoding every text for itself: text i of the input is text ``back[i]`` of the result.
    """
    ids, offsets = np.asarray(tokens.ids), np.asarray(tokens.offsets)
    lengths = np.diff(offsets)
    rows, back = _different(ids, offsets, lengths)
    order = np.argsort(lengths[rows], kind="stable")
    rows = rows[order]
    if len(rows) == len(back) and np.array_equal(rows, np.arange(len(rows))):
        return Packed(ids.astype(np.int64), offsets.astype(np.int64), None)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    starts = np.concatenate([[0], np.cumsum(lengths[rows])])
    places = np.arange(starts[-1]) + np.repeat(offsets[rows] - starts[:-1], lengths[rows])
    return Packed(ids[places].astype(np.int64), starts, rank[back])


def different(tokens: Ragged) -> tuple[Array, Array]:
    """Return the rows of texts without repeats, (M,).

    Which of these each of the B texts is, (B,).

    All rows where ids lie on a device, which is not asked, or where a text has no token.
    """
    lengths = np.diff(tokens.offsets)
    if not isinstance(tokens.ids, np.ndarray) or not len(lengths) or lengths.min() == 0:
        return np.arange(len(lengths)), np.arange(len(lengths))
    return _different(tokens.ids, np.asarray(tokens.offsets), lengths)


def _different(ids: Array, offsets: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the first text of every kind, (M,), and each text's place among these, (B,)."""
    everyone = np.arange(len(lengths))
    places = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    with np.errstate(over="ignore"):
        mixed = (ids.astype(np.uint64) + np.uint64(1)) * HASH_FACTOR
        mixed ^= mixed >> np.uint64(29)
        mixed *= _powers(int(lengths.max()))[places]
        marks = np.add.reduceat(mixed, offsets[:-1])
    _, rows, back = np.unique(marks, return_index=True, return_inverse=True)
    if len(rows) == len(marks):
        return everyone, everyone
    # Equal marks are all but surely equal texts; be sure.
    again = rows[back]
    repeated = np.flatnonzero(again != everyone)
    length = lengths[repeated]
    if np.array_equal(length, lengths[again[repeated]]):
        starts = np.cumsum(length) - length
        steps = np.arange(length.sum()) - np.repeat(starts, length)
        one = ids[np.repeat(offsets[repeated], length) + steps]
        if np.array_equal(one, ids[np.repeat(offsets[again[repeated]], length) + steps]):
            return rows, back
    return everyone, everyone


def _powers(n: int) -> Array:
    """Return (n,) an odd number's powers, wrapped: a token counts by its place."""
    return np.cumprod(np.full(n, HASH_FACTOR | np.uint64(1), np.uint64))


def tiles(offsets: Array, *, sizes: tuple[int, ...] = TILES) -> tuple[dict[int, Array], int]:
    """Cut packed texts into tiles of whole texts.

    Args:
        offsets: (M + 1,) where each text starts, the shortest first.
        sizes: The most tokens of a tile, ascending; a text goes to the smallest that it fits.

    Returns:
        For each size in use, where its tiles start and the last one stops, int32; and the number
        of texts in tiles. The others, at the end, fit none.
    """
    lengths = np.diff(offsets)
    bounds = np.searchsorted(lengths, sizes, side="right")
    found, first = {}, 0
    for size, stop in zip(sizes, bounds.tolist(), strict=True):
        if stop > first:
            own = offsets[first : stop + 1]
            found[size] = own[list(_cuts(own, size))].astype(np.int32)
            first = stop
    return found, first


def _cuts(offsets: Array, size: int) -> Iterator[int]:
    """Fill tiles with texts, from the first on."""
    following = (np.searchsorted(offsets, offsets + size, side="right") - 1).tolist()
    text, last = 0, len(offsets) - 1
    while text < last:  # one round for each tile, not for each text
        yield text
        text = following[text]
    yield last
