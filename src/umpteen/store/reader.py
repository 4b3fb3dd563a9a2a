"""The reading side of a store: states, texts, and the audit trail."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.labels import LabelSet
from umpteen.errors import StoreDamaged
from umpteen.store.checks import text_digest
from umpteen.store.connections import Link
from umpteen.store.damage import Damage, DamageKind
from umpteen.store.poll import Poll
from umpteen.store.reading import read_state, reading, salvage_header
from umpteen.store.schema import BadStore, check_tables, read_header
from umpteen.store.state import StoreState

BUSY_SECONDS = 1.0
TEXTS_AT_ONCE = 500
_LATER_STATE_KNOWN = (DamageKind.MISSING, DamageKind.ROLLED_BACK, DamageKind.REPLACED)


@dataclass(frozen=True)
class AuditEntry:
    """One granted change."""

    revision: int
    time: str
    """UTC, ISO 8601."""
    kind: str
    """``add_labels``, ``retire``, ``restore``, ``add_examples`` or ``repair``."""
    count: int
    who: str


class Reader:
    """Read a store; threads share it under a lock that no writer holds."""

    def __init__(
        self, path: Path, revision_file: Path, labels: LabelSet, *, tolerant: bool
    ) -> None:
        self._path = path
        self._labels = labels
        self._tolerant = tolerant
        self._link = Link(path, writes=False, busy_seconds=BUSY_SECONDS)
        self._lock = self._link.lock
        self.poll = Poll(self._link, revision_file, labels.fingerprint)
        self._state: tuple[object, StoreState] | None = None

    def revision(self) -> int:
        """Return the number of changes granted so far."""
        with self._lock:
            return self._look().revision

    def damage(self) -> Damage | None:
        """Return what is wrong with the store, as far as it has been read."""
        with self._lock:
            found = self.poll.look().damage
            if found is None and self._state is not None:
                found = self._state[1].damage
            return found

    def state(self) -> StoreState:
        """Return the state of now; the same object as before where nothing has changed."""
        with self._lock:
            seen = self._look()
            if self._state is not None and self._state[0] == seen.key(self._state[1].damage):
                return self._state[1]
            state = self._read_again(self._state[1] if self._state is not None else None)
            self._state = (seen.key(state.damage), state)
            return state

    def read(self, after: StoreState | None) -> StoreState:
        """Read the state of now, going on from an earlier one."""
        with self._lock:
            self._look()
            return self._read_again(after)

    def texts(self, digests: Sequence[bytes]) -> list[str]:
        """Read the texts of examples."""
        found: dict[bytes, str] = {}
        with self._lock:
            connection = self.connection()
            for start in range(0, len(digests), TEXTS_AT_ONCE):
                if connection is not None:
                    found.update(_texts(connection, list(digests[start : start + TEXTS_AT_ONCE])))
        if not self._tolerant and any(digest not in found for digest in digests):
            detail = "the text of an example is missing or fails its checksum"
            raise damaged(Damage(DamageKind.BAD_ROWS, self._path, detail))
        return [found.get(digest, "") for digest in digests]

    def audit_trail(self, limit: int | None) -> list[AuditEntry]:
        """Return the last changes, oldest first."""
        with self._lock:
            empty = not self._look().revision
            connection = self.connection()
            if connection is None or empty:
                return []
            rows = connection.execute(
                "SELECT revision, time, kind, count, who FROM changes "
                "ORDER BY revision DESC LIMIT ?",
                (-1 if limit is None else limit,),
            ).fetchall()
        return [AuditEntry(*row) for row in reversed(rows)]

    def integrity_check(self) -> Damage | None:
        """Run SQLite's integrity check, which reads the whole file; return what it found."""
        with self._lock:
            connection = self.connection()
            if connection is None:
                return None
            try:
                (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            except sqlite3.DatabaseError as error:
                found = str(error)
        if found == "ok":
            return None
        detail = f"fails SQLite's integrity check ({found})"
        return Damage(DamageKind.UNREADABLE, self._path, detail)

    def connection(self) -> sqlite3.Connection | None:
        """Return the connection; None if there is no file or it cannot be opened."""
        with self._lock:
            try:
                return self._link.get()[0]
            except sqlite3.DatabaseError:
                return None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._link.close()

    def _look(self) -> Poll:
        seen = self.poll.look()
        if seen.damage is not None and not self._tolerant:
            raise damaged(seen.damage)
        return seen

    def _read_again(self, after: StoreState | None) -> StoreState:
        damage = self.poll.damage
        behind = damage is not None and damage.kind in _LATER_STATE_KNOWN
        if after is not None and after.store_id and behind:
            return dataclasses.replace(after, damage=damage)
        try:
            state, more = self._read_file(after)
        except sqlite3.DatabaseError as error:
            state = None
            more = Damage(DamageKind.UNREADABLE, self._path, f"cannot be read: {error}")
        damage = damage or more
        if damage is not None and not self._tolerant:
            raise damaged(damage)
        if state is None:
            state = after if after is not None else StoreState.empty(self._labels)
        return state if state.damage == damage else dataclasses.replace(state, damage=damage)

    def _read_file(self, after: StoreState | None) -> tuple[StoreState | None, Damage | None]:
        connection, _ = self._link.get()
        if connection is None:
            return None, None
        with reading(connection):
            try:
                header = read_header(connection) if check_tables(connection) else None
            except (BadStore, sqlite3.DatabaseError) as error:
                damage = Damage(DamageKind.UNREADABLE, self._path, str(error))
                if not self._tolerant or (after is not None and after.store_id):
                    return None, damage  # what was read before is better than what is left
                header = salvage_header(connection, self._labels.fingerprint)
                return read_state(connection, header, self._labels, None)[0], damage
            if header is None:
                return StoreState.empty(self._labels), None
            state, bad = read_state(connection, header, self._labels, after)
        return state, Damage(DamageKind.BAD_ROWS, self._path, str(bad)) if bad else None


def damaged(damage: Damage) -> StoreDamaged:
    """Return the error for a damage."""
    return StoreDamaged(str(damage), damage)


def _texts(connection: sqlite3.Connection, digests: list[bytes]) -> dict[bytes, str]:
    """Read texts by their digests; one by one where a page cannot be read."""
    query = f"SELECT text FROM examples WHERE digest IN ({','.join('?' * len(digests))})"
    try:
        rows = connection.execute(query, digests).fetchall()
    except sqlite3.DatabaseError:
        if len(digests) == 1:
            return {}
        rows = []
        for digest in digests:
            rows += [(text,) for text in _texts(connection, [digest]).values()]
    return {text_digest(text): text for (text,) in rows if isinstance(text, str)}
