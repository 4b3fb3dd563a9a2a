"""Strings collected one by one: a list while they are few, flat arrays once there are many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umpteen.data.mapped_strings import MappedStrings

PACKED_ROWS = 1 << 20
"""Strings from which on they are kept as bytes: a Python string takes 57 bytes beside its text."""


class StringColumn:
    """A column of a table while it is read."""

    def __init__(self) -> None:
        self._recent: list[str] = []
        self._parts: list[MappedStrings] = []
        self.has_text = False
        """Whether any string is not empty."""

    def append(self, text: str) -> None:
        """Add a string."""
        self._recent.append(text)
        self.has_text = self.has_text or bool(text)
        if len(self._recent) >= PACKED_ROWS:
            self._parts.append(MappedStrings.pack(self._recent))
            self._recent = []

    def finish(self) -> Sequence[str]:
        """Return the strings; the column is empty afterwards."""
        recent, parts = self._recent, self._parts
        self._recent, self._parts = [], []
        if not parts:
            return recent
        return _joined([*parts, MappedStrings.pack(recent)])


def select_strings(strings: Sequence[str], rows: NDArray[np.int64]) -> Sequence[str]:
    """Return the strings of some rows, kept as the others are.

    Example:
        >>> select_strings(["a", "b", "c"], np.array([2, 0]))
        ['c', 'a']
    """
    chosen = (strings[row] for row in rows.tolist())
    return MappedStrings.pack(chosen) if isinstance(strings, MappedStrings) else list(chosen)


def _joined(parts: list[MappedStrings]) -> MappedStrings:
    sizes = [np.diff(part.offsets) for part in parts]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    return MappedStrings(np.concatenate([part.raw for part in parts]), offsets)
