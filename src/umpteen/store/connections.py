"""SQLite connections that follow the file at a path: reopened when it is replaced.

A store's file must never be opened by other means in a process that has it open in SQLite: closing
such a handle would release SQLite's locks. Nor may a connection be open during a fork: the child
would inherit SQLite's record of locks that it does not hold.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from pathlib import Path
from urllib.parse import quote

Signature = tuple[int, ...]
MAX_WAL_BYTES = 8 << 20
"""Size the WAL is cut to when it starts again after a large change."""
SYNCHRONOUS = "FULL"
"""A change is on the disk before it is granted."""


class Link:
    """One connection to the file at a path."""

    def __init__(self, path: Path, *, writes: bool, busy_seconds: float) -> None:
        self.path = path
        self.writes = writes
        self.busy_seconds = busy_seconds
        self.signature: Signature = ()
        """Of the file when the connection was opened."""
        self.lock = threading.RLock()
        """To hold while the connection is used; a fork waits for it."""
        self._connection: sqlite3.Connection | None = None
        self._immutable = False
        _LINKS.add(self)

    def get(self, *, create: bool = False) -> tuple[sqlite3.Connection | None, bool]:
        """Return a connection to the file as it is now.

        Args:
            create: Whether to create the file if it is missing.

        Returns:
            The connection, or None if there is no file; and whether it was opened just now.

        Raises:
            sqlite3.Error: If the file cannot be opened.
        """
        now = self._sign()
        if self._connection is not None:
            if now == self.signature and not (self._immutable and self._has_wal()):
                return self._connection, False
            self.close()
        if not now and not create:
            return None, True
        for _ in range(100):
            self._connection = self._open(create)
            after = self._sign()
            if after and (not now or after == now):
                self.signature = after
                return self._connection, True
            self.close()
            now = after
            if not now and not create:
                return None, True
        raise sqlite3.OperationalError("the file is being replaced again and again")

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        # A connection refers to itself, so it would stay open until garbage is collected.
        self.close()

    def _open(self, create: bool) -> sqlite3.Connection:
        self._immutable = False
        try:
            return self._connect("rwc" if create else "rw")
        except sqlite3.OperationalError:
            # A folder that cannot be written to has no place for the shared index of the WAL.
            if self.writes or self._has_wal():
                raise
            self._immutable = True
            return self._connect("ro&immutable=1")

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path.absolute()))}?mode={mode}",
            uri=True,
            timeout=self.busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.text_factory = _decode
            for setting in ("trusted_schema = OFF", "cell_size_check = ON", "foreign_keys = ON"):
                connection.execute(f"PRAGMA {setting}")
            if self.writes:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
            else:
                connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _sign(self) -> Signature:
        """Return what differs when the file is replaced; nothing where there is no file."""
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            return ()
        if self.writes:
            return (stat.st_dev, stat.st_ino)
        # A file that is overwritten keeps its number; so does one after a checkpoint.
        return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)

    def _has_wal(self) -> bool:
        try:
            return os.stat(f"{self.path}-wal").st_size > 0
        except FileNotFoundError:
            return False


def _decode(raw: bytes) -> str:
    """Decode text; a row with damaged text must fail its checksum and not the whole query."""
    return raw.decode("utf-8", "replace")


_LINKS: weakref.WeakSet[Link] = weakref.WeakSet()
_HELD: list[Link] = []
_FORK_LOCK = threading.RLock()


def _before_fork() -> None:
    _FORK_LOCK.acquire()
    for link in list(_LINKS):
        link.lock.acquire()
        _HELD.append(link)
        link.close()


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().lock.release()
    _FORK_LOCK.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
