"""Repair a damaged store: keep every row that can be read, and put the damaged file aside.

The first page holds the file header and the table definitions. Stores are created by the same
statements in the same order, so the first page of any other store fits one that has lost its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.labels import LabelSet
from umpteen.errors import NotWritten
from umpteen.files import sync
from umpteen.store.change_store import FILE_NAME, REVISION_NAME, ChangeStore
from umpteen.store.checks import NewLabel
from umpteen.store.damage import Damage, DamageKind
from umpteen.store.reading import CHANGES, good_row, lost_label_id, reading, whole_table
from umpteen.store.revision_file import RevisionRecord, create_revision, read_revision
from umpteen.store.schema import Header, change_crc, create_tables
from umpteen.store.state import StoreState
from umpteen.store.writing import Change, write_change

PAGE = 4096


@dataclass(frozen=True)
class RepairReport:
    """What a repair kept and what was lost."""

    damage: Damage
    aside: Path | None
    """Where the damaged file is now; None if there was no file."""
    labels: int
    """Added labels kept."""
    retired: int
    """Retired labels kept, those included whose text is lost."""
    examples: int
    """Examples kept."""
    lost_labels: int
    """Added labels whose text is lost; their rows stay taken and retired."""
    lost_examples: int
    lost_changes: int
    """Granted changes that the file no longer holds at all."""


def find_damage(run: str | Path, labels: LabelSet) -> Damage | None:
    """Check a store completely: every row, every text, and SQLite's own integrity check."""
    store = ChangeStore(run, labels, read_only=True, tolerant=True)
    with contextlib.closing(store):
        state = store.state()
        if store.damage is not None:
            return store.damage
        texts = store.example_texts(state.examples.digests)
        bad = sum(not text for text in texts)
        if bad:
            detail = f"the texts of {bad} examples are missing or fail their checksums"
            return Damage(DamageKind.BAD_ROWS, store.path, detail)
        return store.reader.integrity_check()


def repair(run: str | Path, labels: LabelSet) -> RepairReport | None:
    """Write a new store with what can be read of a damaged one.

    The new store is a history of its own: running services read it from the start. An added label
    that cannot be read keeps its row under an id of its own and is retired.

    Returns:
        What was kept; None if nothing is damaged.

    Raises:
        NotWritten: If the new store cannot be written; the damaged file stays as it is.
        LabelMismatch: If the store belongs to other labels.
    """
    damage = find_damage(run, labels)
    if damage is None:
        return None
    path = Path(run) / FILE_NAME
    record = read_revision(Path(run) / REVISION_NAME)
    temporary = path.with_name(f".{FILE_NAME}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with _readable(run, labels) as store:
            state, texts, audit = _salvage(store)
            granted = max(record.revision if record is not None else 0, state.revision)
            header = _write_new(temporary, labels, state, texts, audit, granted)
        lost_changes = granted - state.revision
        aside = _swap(path, temporary)
        create_revision(Path(run) / REVISION_NAME, RevisionRecord(header.id, header.revision))
    except OSError as error:
        raise NotWritten(f"{path} could not be repaired ({error.strerror})") from error
    except sqlite3.Error as error:
        raise NotWritten(f"{path} could not be repaired ({error})") from error
    finally:
        for suffix in ("", "-journal"):
            Path(f"{temporary}{suffix}").unlink(missing_ok=True)
    lost_labels = 0
    if state.damage is not None:
        ids = enumerate(state.added.ids)
        lost_labels = sum(label_id == lost_label_id(seq) for seq, label_id in ids)
    return RepairReport(
        damage,
        aside,
        labels=len(state.added) - lost_labels,
        retired=len(state.retired_rows),
        examples=header.n_examples,
        lost_labels=lost_labels,
        lost_examples=len(state.examples) - header.n_examples,
        lost_changes=lost_changes,
    )


@contextlib.contextmanager
def _readable(run: str | Path, labels: LabelSet) -> Iterator[ChangeStore]:
    """Open the damaged store; where its first page is lost, a copy with another first page."""
    store = ChangeStore(run, labels, read_only=True, tolerant=True)
    with contextlib.closing(store):
        state = store.state()
        damage = store.damage
        if not state.store_id and damage is not None and damage.kind == DamageKind.UNREADABLE:
            with graft_first_page(store.path) as folder:
                other = ChangeStore(folder, labels, read_only=True, tolerant=True)
                with contextlib.closing(other):
                    yield other
                return
        yield store


def _salvage(store: ChangeStore) -> tuple[StoreState, list[str], list[tuple]]:
    state = store.state()
    texts = store.example_texts(state.examples.digests)
    audit: list[tuple] = []
    connection = store.reader.connection()
    if connection is not None:
        with contextlib.suppress(sqlite3.DatabaseError), reading(connection):
            good = [r for r in whole_table(connection, CHANGES, "revision")
                    if good_row(r, change_crc)]  # fmt: skip
            for row in good:
                with contextlib.suppress(sqlite3.DatabaseError):
                    query = "SELECT * FROM changes WHERE revision = ?"
                    audit.append(connection.execute(query, (row[1],)).fetchone())
    return state, texts, audit


def _write_new(
    path: Path,
    labels: LabelSet,
    state: StoreState,
    texts: list[str],
    audit: list[tuple],
    granted: int,
) -> Header:
    header = Header(uuid.uuid4().hex, labels.fingerprint, revision=granted)
    change = Change("repair")
    taken: set[str] = set()
    fields = zip(state.added.ids, state.added.texts, state.added.contents, strict=True)
    for seq, (label_id, text, content) in enumerate(fields):
        while label_id in taken or label_id in labels.rows:
            label_id += "-"
        taken.add(label_id)
        change.labels.append((seq, NewLabel(label_id, text, content)))
    change.retirements = [(row, True) for row in state.retired_rows.tolist()]
    change.new_retirements = len(change.retirements)
    for place, text in enumerate(texts):
        packed = state.examples.packed_rows[place]
        if text and packed:
            digest = state.examples.digests[place]
            change.examples.append((len(change.examples), digest, packed, text))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN")
        create_tables(connection, header)
        for row in audit:
            if row[0] <= granted:
                connection.execute(f"INSERT INTO changes VALUES ({','.join('?' * 7)})", row)
        header = write_change(connection, header, change, "")
        connection.execute("COMMIT")
    sync(path)
    return header


def _swap(path: Path, new: Path) -> Path | None:
    """Put a new file in place of the damaged one, which is kept under another name."""
    aside: Path | None = None
    if path.exists():
        aside = next(
            place
            for n in range(1, 10_000)
            if not (place := path.with_name(f"{path.name}.damaged-{n}")).exists()
        )
        try:
            os.link(path, aside)  # not a copy: other processes' locks stay as they are
        except OSError:
            shutil.copy2(path, aside)
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists():
        # It belongs to the damaged file, and must not be replayed into the new one.
        os.replace(wal, f"{aside or path.with_name(path.name + '.damaged')}-wal")
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    os.replace(new, path)
    sync(path.parent)
    return aside


@contextlib.contextmanager
def graft_first_page(path: Path) -> Iterator[Path]:
    """Copy a damaged store to a temporary folder and give it the first page of a new store."""
    with tempfile.TemporaryDirectory(prefix="umpteen-repair-") as name:
        copy = Path(name) / path.name
        fresh = Path(name) / "fresh.sqlite"
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("BEGIN")
            create_tables(connection, Header("", ""))
            connection.execute("COMMIT")
        shutil.copy2(path, copy)
        n_pages = copy.stat().st_size // PAGE
        first = bytearray(fresh.read_bytes()[:PAGE])
        first[28:32] = n_pages.to_bytes(4, "big")  # size of the file in pages
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists() and wal.stat().st_size:
            shutil.copy2(wal, copy.with_name(wal.name))
            first[18:20] = b"\2\2"  # the file is in WAL mode, so the WAL is read too
        if n_pages:
            with copy.open("r+b") as handle:
                handle.write(first)
                handle.truncate(n_pages * PAGE)
        yield Path(name)
