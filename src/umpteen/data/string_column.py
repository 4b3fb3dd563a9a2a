"""Strings collected one by one: a list while they are few, bytes in a file once there are many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from umpteen.data.growing_array import GrowingArray
from umpteen.data.mapped_strings import AT_ONCE, MappedStrings

PACKED_ROWS = 1 << 20
"""Strings from which on they are kept as bytes: a Python string takes 57 bytes beside its text."""


class StringColumn:
    """A column of a table while it is read."""

    def __init__(self) -> None:
        self._recent: list[str] = []
        self._limit = PACKED_ROWS
        self._raw = GrowingArray(np.uint8)
        self._offsets = GrowingArray(np.int64)
        self.has_text = False
        """Whether any string is not empty."""

    def append(self, text: str) -> None:
        """Add a string."""
        self._recent.append(text)
        self.has_text = self.has_text or bool(text)
        if len(self._recent) >= self._limit:
            self._pack()

    def finish(self) -> Sequence[str]:
        """Return the strings; the column is empty afterwards."""
        if self._offsets.length:
            self._pack()
            return MappedStrings(self._raw.finish(), self._offsets.finish())
        recent, self._recent = self._recent, []
        return recent

    def _pack(self) -> None:
        packed = MappedStrings.pack(self._recent)
        first = 1 if self._offsets.length else 0  # each block begins where the one before ended
        self._offsets.extend(packed.offsets[first:] + self._raw.length)
        self._raw.extend(packed.raw)
        self._recent, self._limit = [], min(PACKED_ROWS, AT_ONCE)


def pack_column(strings: Iterable[str]) -> MappedStrings:
    """Return strings as bytes, in a file where they are many."""
    column = StringColumn()
    column._limit = min(PACKED_ROWS, AT_ONCE)
    for text in strings:
        column.append(text)
    column._pack()
    return MappedStrings(column._raw.finish(), column._offsets.finish())


def select_strings(strings: Sequence[str], rows: NDArray[np.int64]) -> Sequence[str]:
    """Return the strings of some rows, kept as the others are.

    Example:
        >>> select_strings(["a", "b", "c"], np.array([2, 0]))
        ['c', 'a']
    """
    chosen = (strings[row] for row in rows.tolist())
    return pack_column(chosen) if isinstance(strings, MappedStrings) else list(chosen)
