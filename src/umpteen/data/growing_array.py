"""Arrays that grow while data is read: in memory while they are small, in a file once they are not.

The files are temporary, without a name, and gone with the arrays. They lie in the folder that
``TMPDIR`` names.
"""

from __future__ import annotations

import mmap
import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from umpteen.errors import DataError

IN_MEMORY_BYTES = 4 << 20
"""Of one array, before it moves to a file; and then of what is written at once."""


class GrowingArray:
    """Values of one kind, appended in blocks."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._recent: list[NDArray[Any]] = []
        self._recent_bytes = 0
        self._file: IO[bytes] | None = None
        self.length = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Append values; the array keeps them and they must not change afterwards."""
        values = np.ascontiguousarray(values, self._dtype)
        self._recent.append(values)
        self._recent_bytes += values.nbytes
        self.length += len(values)
        if self._recent_bytes > IN_MEMORY_BYTES:
            self._write()

    def finish(self) -> NDArray[Any]:
        """Return all values: an array in memory, or a read-only map of the file."""
        if self._file is None:
            return np.concatenate([np.empty(0, self._dtype), *self._recent])
        self._write()
        self._file.flush()
        found: NDArray[Any] = np.memmap(self._file, self._dtype, "r", shape=(self.length,))
        self._file.close()
        return found

    def _write(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="umpteen-")  # noqa: SIM115 - until finish
            for values in self._recent:
                self._file.write(values.data)
        except OSError as error:
            raise DataError(
                f"the data does not fit into the temporary folder {tempfile.gettempdir()} "
                f"({error.strerror}); set TMPDIR to a folder with more space"
            ) from error
        self._recent, self._recent_bytes = [], 0


def forget(array: NDArray[Any]) -> None:
    """Take the pages of a mapped, read-only array out of this process's memory.

    They stay in the file and are read again when wanted. Call it between the blocks of a long
    pass, or all of the file ends up resident. Arrays in memory are left alone.
    """
    mapped = mapping_of(array)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the map that a read-only array is a view of; None for an array in memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return None
        base = base.base
    return base if isinstance(base, mmap.mmap) else None
