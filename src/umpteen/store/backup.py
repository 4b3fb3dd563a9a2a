"""Back up a run folder while it is served and changed, and put a backup in place of a run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from umpteen.data.labels import LabelSet
from umpteen.errors import NotWritten, RunError
from umpteen.files import atomic_folder, leftovers, sync
from umpteen.locks import exclusive_folder
from umpteen.store.change_store import FILE_NAME, REVISION_NAME, ChangeStore
from umpteen.store.reader import damaged
from umpteen.store.repair import find_damage
from umpteen.store.revision_file import RevisionRecord, create_revision
from umpteen.store.schema import Header, read_header, write_header
from umpteen.store.vector_cache import FOLDER as CACHE

ATTEMPTS = 5
Signatures = dict[str, tuple[int, int, int]]
WAIT_SECONDS = 30.0
"""For a change of the run that is being written."""
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def backup(run: str | Path, out: str | Path, labels: LabelSet) -> int:
    """Copy a run folder as of one moment, with its store of changes.

    The copy is a run of its own, which ``restore`` puts in place of the run. Its store is a new
    history, so a service that is running reads it from the start.

    Returns:
        The revision of the store that was copied.

    Raises:
        RunError: If the run changes again and again while it is copied, as in training.
        StoreDamaged: If the store is damaged; repair it first.
        NotWritten: If the copy cannot be written.
    """
    source, target = Path(run).resolve(), Path(out).resolve()
    if target == source or source in target.parents:
        raise RunError(f"{out} lies inside the run {run}; name a folder outside it")
    store = ChangeStore.open(run, labels, read_only=True)
    try:
        with contextlib.closing(store), atomic_folder(out) as folder:
            _copy_rest(source, folder)
            return _copy_store(store, folder)
    except OSError as error:
        raise NotWritten(f"{out} could not be written ({error.strerror})") from error
    except sqlite3.Error as error:
        raise NotWritten(f"{out} could not be written ({error})") from error


def _copy_store(store: ChangeStore, folder: Path) -> int:
    connection = store.reader.connection()
    if not store.state().store_id or connection is None:
        return 0
    copy = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    with contextlib.closing(copy):
        connection.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
        copy.execute("BEGIN")
        header: Header = replace(read_header(copy), id=uuid.uuid4().hex)
        write_header(copy, header)
        copy.execute("COMMIT")
    create_revision(folder / REVISION_NAME, RevisionRecord(header.id, header.revision))
    return header.revision


def _copy_rest(source: Path, folder: Path) -> None:
    """Copy all files but the store; again, if one of them was replaced meanwhile."""
    for _ in range(ATTEMPTS):
        before = _signatures(source)
        try:
            for name in before:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, folder / name)
        except FileNotFoundError:
            if not folder.exists():
                raise
        else:
            if _signatures(source) == before:
                return
        for place in folder.iterdir():
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    raise RunError(
        f"{source} changed during each of {ATTEMPTS} attempts to copy it; back it up when no "
        "training writes to it"
    )


def _signatures(source: Path) -> Signatures:
    """Return what differs when a file was replaced, by name; cached vectors may change freely."""
    passed = {*leftovers(source), *source.glob(f"{FILE_NAME}*"), source / REVISION_NAME}
    passed.add(source / CACHE)
    found: Signatures = {}
    for place in sorted(source.iterdir()):
        if place in passed:
            continue
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.is_file():
                stat = file.stat()
                found[str(file.relative_to(source))] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


@dataclass(frozen=True)
class RestoreReport:
    """What a restore put in place."""

    revision: int
    """Of the store of changes."""
    aside: Path | None
    """Where the run is now that was there before."""


def restore(source: str | Path, run: str | Path, labels: LabelSet) -> RestoreReport:
    """Put a copy of a backup in place of a run.

    The backup stays as it is. A service that is running loads the restored run; changes that were
    granted since the backup are in the folder that is put aside. No change is granted to that
    folder once this function returns.

    Returns:
        Its revision, and where the previous run is.

    Raises:
        RunError: If the source lies inside the run, or a training writes to the run.
        StoreDamaged: If the store of the backup is damaged.
        NotWritten: If the copy cannot be written.
    """
    origin, target = Path(source).resolve(), Path(run).resolve()
    if origin == target or target in origin.parents:
        raise RunError(f"{source} lies inside the run {run}; move it out of it first")
    damage = find_damage(origin, labels)
    if damage is not None:
        raise damaged(damage)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    revision = backup(origin, temporary, labels)
    try:
        if not target.exists() or not any(target.iterdir()):
            os.replace(temporary, target)
            return RestoreReport(revision, None)
        busy = RunError(f"a training writes to {run}; wait until it ends, or stop it")
        with exclusive_folder(target, busy=busy), _no_changes(target / FILE_NAME):
            _exchange(temporary, target)
        aside = _free_name(target)
        os.replace(temporary, aside)
        sync(target.parent)
        return RestoreReport(revision, aside)
    except OSError as error:
        raise NotWritten(
            f"{run} could not be replaced ({error.strerror}); the copy of the backup is {temporary}"
        ) from error


@contextlib.contextmanager
def _no_changes(file: Path) -> Iterator[None]:
    """Hold the write lock of a store: a change is granted before, or refused and tried again."""
    connection = sqlite3.connect(file, timeout=WAIT_SECONDS, isolation_level=None)
    with contextlib.closing(connection):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise RunError(f"{file} is being written; try again") from error
            # A damaged store grants no change.
        yield


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places; in one step where the system can."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    names = os.fsencode(one), os.fsencode(other)
    if rename and not rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        return
    between = one.with_name(f"{one.name}.old")
    os.replace(other, between)
    os.replace(one, other)
    os.replace(between, one)


def _free_name(run: Path) -> Path:
    return next(
        place
        for n in range(1, 10_000)
        if not (place := run.with_name(f"{run.name}.before-restore-{n}")).exists()
    )
