"""Grant changes: one transaction each, checked against the revision file and recorded in it."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from pathlib import Path

from umpteen.data.labels import LabelSet
from umpteen.errors import NotWritten, StoreDamaged
from umpteen.store.connections import Link
from umpteen.store.damage import Damage, DamageKind
from umpteen.store.poll import Poll
from umpteen.store.reader import damaged
from umpteen.store.revision_file import (
    RevisionRecord,
    advance_revision,
    create_revision,
    read_revision,
)
from umpteen.store.schema import BadStore, Header, check_tables, create_tables, read_header
from umpteen.store.writing import Planner, write_change

ATTEMPTS = 5
"""To write a change while the run is replaced."""


class _Replaced(sqlite3.OperationalError):
    """Another file is at the path; nothing was written."""


class Writer:
    """The writing side of a store."""

    def __init__(
        self, path: Path, revision_file: Path, labels: LabelSet, poll: Poll, busy_seconds: float
    ) -> None:
        self._path = path
        self._revision_file = revision_file
        self._labels = labels
        self._poll = poll
        self._link = Link(path, writes=True, busy_seconds=busy_seconds)

    def change(self, plan: Planner, who: str) -> int:
        """Decide and write a change.

        Returns:
            How many rows were changed; 0 if nothing was written.

        Raises:
            DataError: If the plan refuses.
            NotWritten: If the change could not be written; nothing has changed.
            StoreDamaged: If the store is damaged.
        """
        with self._link.lock:
            try:
                header, count = self._transact_again(plan, who)
            except sqlite3.Error as error:
                raise self._translated(error) from error
            except OSError as error:
                raise self._not_written(error.strerror or str(error)) from error
            if count:
                advance_revision(self._revision_file, RevisionRecord(header.id, header.revision))
            return count

    def close(self) -> None:
        """Close the connection."""
        with self._link.lock:
            self._link.close()

    def _transact_again(self, plan: Planner, who: str) -> tuple[Header, int]:
        """Write a change; start over if the run was replaced before it was committed."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self._transact(plan, who)
            except _Replaced:
                continue
        return self._transact(plan, who)

    def _transact(self, plan: Planner, who: str) -> tuple[Header, int]:
        # Read before the transaction: the store must hold what was granted before it began.
        record = read_revision(self._revision_file)
        if not self._path.exists():
            # A change that is refused, or that changes nothing, must not create the file.
            with contextlib.closing(_empty_store(self._labels.fingerprint)) as nothing:
                if not plan(nothing, Header("", "")).touched:
                    return Header("", ""), 0
        connection, _ = self._link.get(create=True)
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._link.get()[0] is not connection:
                raise _Replaced("the file was replaced during the change")
            header = self._header(connection, record)
            change = plan(connection, header)
            if not change.touched:
                return header, 0
            after = write_change(connection, header, change, who)
            connection.execute("COMMIT")
            return after, len(change.touched)
        finally:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _header(self, connection: sqlite3.Connection, record: RevisionRecord | None) -> Header:
        try:
            header = read_header(connection) if check_tables(connection) else None
        except BadStore as error:
            raise damaged(Damage(DamageKind.UNREADABLE, self._path, str(error))) from error
        damage = self._poll.compare(header, record)
        if damage is not None and damage.kind == DamageKind.REPLACED:
            # By a restore after the revision file was read: its own revision file came with it.
            damage = self._poll.compare(header, read_revision(self._revision_file))
        if damage is not None:
            raise damaged(damage)
        if header is None:
            header = Header(uuid.uuid4().hex, self._labels.fingerprint)
            create_revision(self._revision_file, RevisionRecord(header.id, 0))
            create_tables(connection, header)
        return header

    def _translated(self, error: sqlite3.Error) -> NotWritten | StoreDamaged:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return damaged(Damage(DamageKind.UNREADABLE, self._path, f"cannot be read: {error}"))
        return self._not_written(str(error))

    def _not_written(self, why: str) -> NotWritten:
        return NotWritten(
            f"{self._path} could not be written ({why}), so nothing was changed; check free space, "
            "permissions and other writers, and try again"
        )


def _empty_store(fingerprint: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(connection, Header("", fingerprint))
    return connection
