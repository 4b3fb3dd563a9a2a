"""Limits on what a file may grow to while it is read: decompression bombs become a sentence."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import IO

from umpteen.errors import DataError

MAX_RATIO = 200
"""Of a text's size to that of its gzip data; natural text reaches 3 to 20, a bomb 1,000."""
UNCHECKED_BYTES = 128 << 20
"""Any file may have this many bytes."""


class Unzipped(gzip.GzipFile):
    """The content of gzip data, refused once it is far larger than the data.

    Args:
        stream: The compressed bytes.
        path: The file, for the message.
    """

    def __init__(self, stream: IO[bytes], path: object) -> None:
        super().__init__(fileobj=stream, mode="rb")
        self._path = path
        self._read_bytes = 0
        self._limit = max(UNCHECKED_BYTES, MAX_RATIO * _size(stream))

    def read(self, size: int | None = -1) -> bytes:
        """Read up to that many bytes.

        Raises:
            DataError: If there are far more than the compressed size explains.
        """
        # All at once would be too late to look.
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        content = super().read(size)
        self._read_bytes += len(content)
        if self._read_bytes > self._limit:
            raise DataError(
                f"the gzip data decompresses to more than {MAX_RATIO} times its size and more than "
                f"{UNCHECKED_BYTES >> 20} MiB; if that is right, decompress the file first",
                path=str(self._path),
            )
        return content


def check_fits(path: Path, n_bytes: int) -> None:
    """Raise if a file would need more memory than the machine has.

    Args:
        path: The file.
        n_bytes: What it says that its content takes.

    Raises:
        DataError: If that is too much.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if n_bytes > memory:
        raise DataError(
            f"the content takes {n_bytes / 2**30:,.1f} GiB, more than the {memory / 2**30:,.1f} "
            "GiB of this machine; split the file, or check where it is from",
            path=path,
        )


def _size(stream: IO[bytes]) -> int:
    """Return the bytes of a file; of a pipe, as many as need no limit."""
    try:
        stat = os.fstat(stream.fileno())
    except OSError:
        return 1 << 50
    return stat.st_size or 1 << 50
