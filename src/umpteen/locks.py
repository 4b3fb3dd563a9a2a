"""Locks of folders and files, which the system releases however a process ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from umpteen.errors import UmpteenError


@contextlib.contextmanager
def exclusive_folder(path: str | Path, *, busy: UmpteenError) -> Iterator[None]:
    """Hold the lock of a folder, which is made where it is missing.

    The system releases the lock however the process ends. A folder that is empty in the end is
    removed if it was made here.

    Args:
        path: The folder.
        busy: Raised if another process holds the lock.
    """
    path = Path(path)
    while True:
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(handle, path, busy)
            if not _is_same(handle, path):  # removed by whoever had the lock before
                continue
            try:
                yield
            finally:
                if made:
                    with contextlib.suppress(OSError):
                        path.rmdir()
            return
        finally:
            os.close(handle)


def open_locked(path: Path, *, busy: UmpteenError) -> IO[bytes]:
    """Open a file to append to it; the system releases its lock when it is closed.

    Args:
        path: The file, which is made where it is missing.
        busy: Raised if another process holds the lock.
    """
    while True:
        file = path.open("ab")
        try:
            _lock(file.fileno(), path, busy)
            if _is_same(file.fileno(), path):  # not renamed by whoever had the lock before
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(handle: int, path: Path, busy: UmpteenError) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise busy from None
        logging.getLogger(__name__).warning(
            "%s cannot be locked (%s); make sure that no other process writes to it", path, error
        )


def _is_same(handle: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False
