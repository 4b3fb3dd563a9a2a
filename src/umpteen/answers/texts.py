"""Beginnings of many texts, kept to be shown: one array of bytes, read where one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import RunError

LONGEST_SHOWN = 300
"""Characters of a text that are kept."""


def shorten(text: str) -> str:
    """A text as it is, or its beginning and an ellipsis."""
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


@dataclass(frozen=True)
class Beginnings:
    """The first characters of M texts.

    Example:
        >>> kept = Beginnings.of(["apple", "", "pear"])
        >>> len(kept), kept[2]
        (3, 'pear')
    """

    content: NDArray[np.uint8]
    """(bytes,) UTF-8, one text after another; memory-mapped where it was loaded."""
    offsets: NDArray[np.int64]
    """(M + 1,) where each begins."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        start, stop = self.offsets[row], self.offsets[row + 1]
        return self.content[start:stop].tobytes().decode("utf-8", "replace")

    @property
    def n_bytes(self) -> int:
        """What they take on disk."""
        return int(self.content.nbytes + self.offsets.nbytes)

    @classmethod
    def of(cls, texts: Sequence[str]) -> Beginnings:
        """Cut texts where they are long, and keep them."""
        parts = [shorten(text).encode("utf-8", "replace") for text in texts]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(np.frombuffer(b"".join(parts), np.uint8), offsets)

    def save(self, folder: Path) -> None:
        """Write into a folder that exists."""
        np.save(folder / "texts.npy", self.content, allow_pickle=False)
        np.save(folder / "texts_offsets.npy", self.offsets, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, n: int) -> Beginnings | None:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n: How many there must be.

        Returns:
            None where none were kept.

        Raises:
            RunError: If they are damaged.
        """
        if not (folder / "texts_offsets.npy").is_file():
            return None
        try:
            offsets = np.load(folder / "texts_offsets.npy", allow_pickle=False)
            # An empty file cannot be mapped.
            mode: Literal["r"] | None = "r" if int(offsets[-1]) else None
            content = np.load(folder / "texts.npy", mmap_mode=mode, allow_pickle=False)
            rising = offsets.shape == (n + 1,) and offsets.dtype.kind == "i"
            rising = rising and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
            if not rising or content.shape != (offsets[-1],) or content.dtype != np.uint8:
                raise ValueError(f"{content.shape} bytes for {n} texts do not fit their offsets")
        except (OSError, ValueError, TypeError, EOFError, IndexError) as error:
            raise RunError(f"{folder} is damaged: {error}; fit it again") from error
        return cls(content, offsets)
