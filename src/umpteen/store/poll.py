"""Notice changes and damage of a store's file at the cost of a few system calls."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from umpteen.errors import LabelMismatch
from umpteen.store.connections import Link
from umpteen.store.damage import Damage, DamageKind
from umpteen.store.reading import reading
from umpteen.store.revision_file import RevisionRecord, read_revision
from umpteen.store.schema import BadStore, Header, check_tables, read_header

Key = tuple[object, ...]


class Poll:
    """What a reader knows of the file: its history, its revision and its damage."""

    def __init__(self, link: Link, revision_file: Path, fingerprint: str) -> None:
        self._link = link
        self._revision_file = revision_file
        self._fingerprint = fingerprint
        self._data_version = -1
        self._seen = ("", 0)
        self.damage: Damage | None = None

    @property
    def store_id(self) -> str:
        """The history that was seen; empty while there is none."""
        return self._seen[0]

    @property
    def revision(self) -> int:
        """The revision that was seen."""
        return self._seen[1]

    def key(self, damage: Damage | None) -> Key:
        """Return what differs when the state must be read again."""
        where = self._link.signature if damage is not None else ()
        return (self.store_id, self.revision, self.damage, where)

    def look(self) -> Poll:
        """Look at the file again.

        Returns:
            This object, up to date.

        Raises:
            LabelMismatch: If the store belongs to other labels.
            RunError: If it was written by a newer version.
        """
        try:
            if self.damage is not None:
                self._link.close()  # it may have been mended: look at everything again
            elif not self._is_new():
                return self
            # Of two moments the revision file must be the earlier one.
            record = read_revision(self._revision_file)
            header, version = self._read()
            damage = self.compare(header, record)
            if damage is not None and damage.kind == DamageKind.REPLACED:
                # By a restore after the revision file was read: its own revision file came with it.
                damage = self.compare(header, read_revision(self._revision_file))
            self._take(header, damage)
            self._data_version = version
        except (BadStore, OSError) as error:
            self.damage = Damage(DamageKind.UNREADABLE, self._link.path, str(error))
        except sqlite3.DatabaseError as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if busy and self.store_id:
                return self  # checked again later; what was read before still holds
            detail = f"cannot be read: {error}"
            self.damage = Damage(DamageKind.UNREADABLE, self._link.path, detail)
        return self

    def compare(self, header: Header | None, record: RevisionRecord | None) -> Damage | None:
        """Compare the file with the revision file and with what this process has seen of it.

        Raises:
            LabelMismatch: If the store belongs to other labels.
        """
        path = self._link.path
        if header is not None and header.fingerprint != self._fingerprint:
            raise LabelMismatch(
                f"{path} belongs to labels with the fingerprint {header.fingerprint[:12]}, and the "
                f"run's labels have {self._fingerprint[:12]}; move the file and changes.revision "
                "away to go on without its changes"
            )
        granted = record.revision if record is not None else 0
        if header is None:
            granted = max(granted, self.revision)
            if not granted:
                return None
            detail = f"is missing or empty, although {_changes(granted)} granted"
            return Damage(DamageKind.MISSING, path, detail)
        if record is not None and granted and record.store_id != header.id:
            detail = "is not the store that changes.revision belongs to"
            return Damage(DamageKind.REPLACED, path, detail)
        store_id, revision = self._seen  # at once: another thread may look again meanwhile
        if header.id == store_id:
            granted = max(granted, revision)
        if header.revision < granted:
            detail = f"holds {header.revision} changes, although {_changes(granted)} granted"
            return Damage(DamageKind.ROLLED_BACK, path, detail)
        return None

    def _is_new(self) -> bool:
        connection, opened = self._link.get()
        if connection is None:
            # Usual for a run without changes: one more look, for a revision file.
            return bool(self.revision) or self._revision_file.exists()
        if opened:
            return True
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        return bool(version != self._data_version)

    def _read(self) -> tuple[Header | None, int]:
        connection, _ = self._link.get()
        if connection is None:
            return None, -1
        # Before the header: a change in between is then seen next time.
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        if self._link.path.stat().st_size % page_size:
            raise BadStore("its last page is cut")
        with reading(connection):
            header = read_header(connection) if check_tables(connection) else None
        return header, int(version)

    def _take(self, header: Header | None, damage: Damage | None) -> None:
        if header is not None and (damage is None or not self.store_id):
            self._seen = (header.id, header.revision)
        self.damage = damage


def _changes(count: int) -> str:
    return f"{count} change was" if count == 1 else f"{count} changes were"
