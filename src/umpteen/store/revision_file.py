"""A small file that says how many changes were granted, so that a lost or older store is noticed.

The file has two slots of 64 bytes, ``CRC STORE-ID REVISION``, written in turn. A write that is
interrupted damages one slot at most.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from umpteen.files import atomic_file

SLOT = 64
WAIT_SECONDS = 2.0


@dataclass(frozen=True)
class RevisionRecord:
    """What a revision file says: a history and the number of changes granted in it."""

    store_id: str
    revision: int


def read_revision(path: Path) -> RevisionRecord | None:
    """Read a revision file; None if there is none that can be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return _newest(content)


def create_revision(path: Path, record: RevisionRecord) -> None:
    """Write a revision file in place of any that is there.

    Raises:
        OSError: If it cannot be written.
    """
    with atomic_file(path) as temporary:
        temporary.write_bytes(_slot(record) + b"\n" * SLOT)


def advance_revision(path: Path, record: RevisionRecord) -> bool:
    """Record a granted change, unless a later one is recorded already.

    Never raises: the change is in the store, and the next one is recorded again.

    Returns:
        Whether the file holds this change or a later one.
    """
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            create_revision(path, record)
            return True
        return False
    except OSError:
        return False
    try:
        if not _lock(handle):
            return False
        known = _newest(os.pread(handle, 2 * SLOT, 0))
        if known is not None and known.store_id != record.store_id:
            return False  # the store was repaired or restored meanwhile
        if known is not None and known.revision >= record.revision:
            return True
        os.pwrite(handle, _slot(record), SLOT * (record.revision % 2))
        os.fsync(handle)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.001)


def _slot(record: RevisionRecord) -> bytes:
    payload = b"%s %020d" % (record.store_id.encode("ascii"), record.revision)
    return (b"%08x %s" % (zlib.crc32(payload), payload)).ljust(SLOT - 1) + b"\n"


def _newest(content: bytes) -> RevisionRecord | None:
    found = []
    for start in (0, SLOT):
        crc, _, payload = content[start : start + SLOT].strip().partition(b" ")
        with contextlib.suppress(ValueError, UnicodeDecodeError):
            if int(crc, 16) == zlib.crc32(payload):
                store_id, _, revision = payload.partition(b" ")
                found.append(RevisionRecord(store_id.decode("ascii"), int(revision)))
    return max(found, key=lambda record: record.revision, default=None)
