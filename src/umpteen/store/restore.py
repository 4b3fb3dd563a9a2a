"""Put a backup in place of a run, in one step and while services use the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.labels import LabelSet
from umpteen.errors import NotWritten, RunError
from umpteen.files import exclusive_folder, sync
from umpteen.store.backup import backup
from umpteen.store.change_store import FILE_NAME
from umpteen.store.reader import damaged
from umpteen.store.repair import find_damage

WAIT_SECONDS = 30.0
"""For a change of the run that is being written."""
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


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

    Args:
        source: The backup.
        run: The run folder; it need not exist.
        labels: The labels the backup was trained with.

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
