"""Shortened copies of many texts in one array of bytes, to be shown with predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS

MAX_CHARACTERS = 300
"""Characters of a text that are kept."""


def shorten(text: str) -> str:
    """Return the text, or its beginning and an ellipsis where it is long."""
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


@dataclass(frozen=True)
class TextSnippets:
    """The first characters of M texts.

    Example:
        >>> kept = TextSnippets.of(["apple", "", "pear"])
        >>> len(kept), kept[2]
        (3, 'pear')
    """

    content: NDArray[np.uint8]
    """(bytes,) UTF-8, one text after another; memory-mapped after loading."""
    offsets: NDArray[np.int64]
    """(M + 1,) where each text starts."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        start, stop = self.offsets[row], self.offsets[row + 1]
        return self.content[start:stop].tobytes().decode("utf-8", "replace")

    @property
    def n_bytes(self) -> int:
        """Size on disk."""
        return int(self.content.nbytes + self.offsets.nbytes)

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextSnippets:
        """Shorten texts and store them."""
        parts = [shorten(text).encode("utf-8", "replace") for text in texts]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(np.frombuffer(b"".join(parts), np.uint8), offsets)

    def save(self, folder: Path) -> None:
        """Write into an existing folder."""
        np.save(folder / "texts.npy", self.content, allow_pickle=False)
        np.save(folder / "texts_offsets.npy", self.offsets, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, n: int) -> TextSnippets | None:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n: The expected number of texts.

        Returns:
            None where no texts were kept.

        Raises:
            RunError: If the files are damaged.
        """
        if not (folder / "texts_offsets.npy").is_file():
            return None
        try:
            offsets = np.load(folder / "texts_offsets.npy", allow_pickle=False)
            mode: Literal["r"] | None = "r" if int(offsets[-1]) else None  # empty: cannot be mapped
            content = np.load(folder / "texts.npy", mmap_mode=mode, allow_pickle=False)
            rising = offsets.shape == (n + 1,) and offsets.dtype.kind == "i"
            rising = rising and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
            if not rising or content.shape != (offsets[-1],) or content.dtype != np.uint8:
                raise ValueError(f"{content.shape} bytes for {n} texts do not fit their offsets")
        except LOAD_ERRORS as error:
            raise RunError(f"{folder} is damaged: {error}; fit the ensemble again") from error
        return cls(content, offsets)
