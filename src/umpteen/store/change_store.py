"""The store of one run: polled, read and changed."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from umpteen.data.labels import LabelSet
from umpteen.errors import NotWritten
from umpteen.store.checks import NewLabel, text_digest
from umpteen.store.connections import Link
from umpteen.store.damage import Damage, DamageKind
from umpteen.store.poll import Poll
from umpteen.store.reading import read_state, reading, salvage_header
from umpteen.store.schema import BadStore, check_tables, read_header
from umpteen.store.state import StoreState
from umpteen.store.writer import Writer, damaged
from umpteen.store.writing import Planner, plan_examples, plan_new_labels, plan_retirements

FILE_NAME = "changes.sqlite"
WITNESS_NAME = "changes.witness"
READ_BUSY_SECONDS = 1.0
WRITE_BUSY_SECONDS = 5.0


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


class ChangeStore:
    """Labels added, retired or restored and examples added after training.

    A change is on the disk when the call returns, and every process that reads the run sees it from
    its next ``state()`` on. A change that is in force already is granted and writes nothing. Reads
    never wait for a writer. Threads may share a store; after a fork each process uses its own
    connections.

    Use ``ChangeStore.open``. A run without changes has no file; the first change creates it.
    """

    def __init__(
        self,
        run: str | Path,
        labels: LabelSet,
        *,
        read_only: bool = False,
        tolerant: bool = False,
        busy_seconds: float = WRITE_BUSY_SECONDS,
    ) -> None:
        self.path = Path(run) / FILE_NAME
        self.labels = labels
        self.read_only = read_only
        self.tolerant = tolerant
        self._reader = Link(self.path, writes=False, busy_seconds=READ_BUSY_SECONDS)
        self._poll = Poll(self._reader, Path(run) / WITNESS_NAME, labels.fingerprint)
        self._writer = Writer(self.path, Path(run) / WITNESS_NAME, labels, self._poll, busy_seconds)
        self._read_lock = threading.RLock()
        self._state: tuple[object, StoreState] | None = None

    @classmethod
    def open(
        cls,
        run: str | Path,
        labels: LabelSet,
        *,
        read_only: bool = False,
        tolerant: bool = False,
        busy_seconds: float = WRITE_BUSY_SECONDS,
    ) -> Self:
        """Open the store of a run; rows are read when ``state`` is called.

        Args:
            run: The run folder.
            labels: The labels it was trained with.
            read_only: Whether to refuse changes.
            tolerant: Whether to serve what can be read of a damaged store and refuse changes,
                instead of raising.
            busy_seconds: How long a change waits for another writer.

        Returns:
            The store.

        Raises:
            StoreDamaged: If the store is damaged, missing or older than it was, and ``tolerant``
                is False.
            LabelMismatch: If it belongs to other labels.
        """
        store = cls(run, labels, read_only=read_only, tolerant=tolerant, busy_seconds=busy_seconds)
        _ = store.revision
        return store

    @property
    def revision(self) -> int:
        """Number of changes granted so far; costs microseconds where nothing has changed.

        Raises:
            StoreDamaged: If the store is damaged and not ``tolerant``.
        """
        with self._read_lock:
            return self._look().revision

    @property
    def damage(self) -> Damage | None:
        """What is wrong with the store, as far as it has been read; None while nothing is."""
        with self._read_lock:
            found = self._poll.look().damage
            if found is None and self._state is not None:
                found = self._state[1].damage
            return found

    def state(self) -> StoreState:
        """Return the state of now; the same object as before where nothing has changed.

        Raises:
            StoreDamaged: If the store is damaged and not ``tolerant``.
        """
        with self._read_lock:
            seen = self._look()
            if self._state is not None and self._state[0] == seen.key(self._state[1].damage):
                return self._state[1]
            state = self._read_again(self._state[1] if self._state is not None else None)
            self._state = (seen.key(state.damage), state)
            return state

    def read(self, after: StoreState | None = None) -> StoreState:
        """Read the state of now in one transaction.

        Args:
            after: An earlier state of this store: only what is new since is read.

        Returns:
            The state; ``after`` itself where nothing has changed.

        Raises:
            StoreDamaged: If the store is damaged and not ``tolerant``.
        """
        with self._read_lock:
            self._look()
            return self._read_again(after)

    def example_texts(self, digests: Sequence[bytes]) -> list[str]:
        """Read the texts of examples.

        Args:
            digests: From ``StoreState.examples.digests``.

        Returns:
            One text per digest; empty where the text cannot be read and the store is tolerant.

        Raises:
            StoreDamaged: If a text cannot be read and the store is not tolerant.
        """
        texts: list[str] = []
        with self._read_lock:
            connection, _ = self._reader.get()
            for digest in digests:
                row = None
                with contextlib.suppress(sqlite3.DatabaseError):
                    if connection is not None and digest:
                        row = connection.execute(
                            "SELECT text FROM examples WHERE digest = ?", (digest,)
                        ).fetchone()
                good = row is not None and text_digest(row[0]) == digest
                if not good and not self.tolerant:
                    detail = "the text of an example is missing or fails its checksum"
                    raise damaged(Damage(DamageKind.BAD_ROWS, self.path, detail))
                texts.append(row[0] if row is not None and good else "")
        return texts

    def audit_trail(self, limit: int | None = None) -> list[AuditEntry]:
        """Return the changes granted so far, oldest first.

        Args:
            limit: Return the last ones only.
        """
        with self._read_lock:
            connection, _ = self._reader.get()
            if connection is None or not self._look().revision:
                return []
            rows = connection.execute(
                "SELECT revision, time, kind, count, who FROM changes ORDER BY revision DESC "
                "LIMIT ?",
                (-1 if limit is None else limit,),
            ).fetchall()
        return [AuditEntry(*row) for row in reversed(rows)]

    def add_labels(self, labels: Sequence[NewLabel], *, who: str = "") -> int:
        """Add labels, all or none; a label that is there already with the same text is skipped.

        Args:
            labels: The labels. Their rows follow the last row, in this order.
            who: The person or program, for the audit trail.

        Returns:
            How many were new.

        Raises:
            DataError: If a label cannot be added: blank, too long, its id taken or retired.
            NotWritten: If the change could not be written; nothing has changed.
            StoreDamaged: If the store is damaged.
        """
        return self._change(plan_new_labels(self.labels, labels), who)

    def retire_labels(self, ids: Sequence[str], *, who: str = "") -> int:
        """Retire labels, all or none: no prediction returns them. Their ids and rows stay taken.

        Args:
            ids: Ids of trained or added labels.
            who: The person or program, for the audit trail.

        Returns:
            How many were not retired before.

        Raises:
            DataError: If no label has one of the ids.
            NotWritten: If the change could not be written; nothing has changed.
            StoreDamaged: If the store is damaged.
        """
        return self._change(plan_retirements(self.labels, ids, retired=True), who)

    def restore_labels(self, ids: Sequence[str], *, who: str = "") -> int:
        """Undo ``retire_labels``, for all or none; return how many were retired."""
        return self._change(plan_retirements(self.labels, ids, retired=False), who)

    def add_examples(
        self, texts: Sequence[str], labels: Sequence[Sequence[str]], *, who: str = ""
    ) -> int:
        """Add labelled texts, all or none; a text that is there already gets the new labels.

        Args:
            texts: The texts.
            labels: The label ids of each text, at least one.
            who: The person or program, for the audit trail.

        Returns:
            How many texts were new or got other labels.

        Raises:
            DataError: If a text is blank, too long or not valid, or a label unknown or retired.
            NotWritten: If the change could not be written; nothing has changed.
            StoreDamaged: If the store is damaged.
        """
        return self._change(plan_examples(self.labels, texts, labels), who)

    def close(self) -> None:
        """Close the connections; the store can be used again afterwards."""
        with self._read_lock:
            self._reader.close()
        self._writer.close()

    def _look(self) -> Poll:
        seen = self._poll.look()
        if seen.damage is not None and not self.tolerant:
            raise damaged(seen.damage)
        return seen

    def _read_again(self, after: StoreState | None) -> StoreState:
        """Read the state; with damage, keep to the last state that is known to be later."""
        damage = self._poll.damage
        behind = damage is not None and damage.kind in (
            DamageKind.MISSING, DamageKind.ROLLED_BACK, DamageKind.REPLACED
        )  # fmt: skip
        if after is not None and behind and after.store_id:
            return dataclasses.replace(after, damage=damage)
        try:
            state, more = self._read_file(after)
        except sqlite3.DatabaseError as error:
            state, more = None, Damage(DamageKind.UNREADABLE, self.path, f"cannot be read: {error}")
        damage = damage or more
        if damage is not None and not self.tolerant:
            raise damaged(damage)
        if state is None:
            state = after if after is not None else StoreState.empty(self.labels)
        return state if state.damage == damage else dataclasses.replace(state, damage=damage)

    def _read_file(self, after: StoreState | None) -> tuple[StoreState | None, Damage | None]:
        connection, _ = self._reader.get()
        if connection is None:
            return None, None
        with reading(connection):
            try:
                header = read_header(connection) if check_tables(connection) else None
            except BadStore as error:
                damage = Damage(DamageKind.UNREADABLE, self.path, str(error))
                if not self.tolerant:
                    return None, damage
                header = salvage_header(connection, self.labels.fingerprint)
                return read_state(connection, header, self.labels, None)[0], damage
            if header is None:
                return StoreState.empty(self.labels), None
            state, bad = read_state(connection, header, self.labels, after)
        return state, Damage(DamageKind.BAD_ROWS, self.path, str(bad)) if bad else None

    def _change(self, plan: Planner, who: str) -> int:
        if self.read_only:
            raise NotWritten(f"{self.path} is open for reading only; nothing was changed")
        damage = self.damage
        if damage is not None:
            raise damaged(damage)
        return self._writer.change(plan, who)
