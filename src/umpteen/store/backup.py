"""Back up a run folder while it is served and changed."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import uuid
from dataclasses import replace
from pathlib import Path

from umpteen.data.labels import LabelSet
from umpteen.errors import NotWritten, RunError
from umpteen.files import atomic_folder, leftovers
from umpteen.store.change_store import FILE_NAME, WITNESS_NAME, ChangeStore
from umpteen.store.schema import Header, read_header, write_header
from umpteen.store.vector_cache import FOLDER as CACHE
from umpteen.store.witness import Witness, create_witness

ATTEMPTS = 5
Signatures = dict[str, tuple[int, int, int]]


def backup(run: str | Path, out: str | Path, labels: LabelSet) -> int:
    """Copy a run folder as of one moment, with its store of changes.

    The copy is a run of its own, which ``restore`` puts in place of the run. Its store is a new
    history, so a service that is running reads it from the start.

    Args:
        run: The run folder.
        out: The folder to make; it must not exist, or be empty.
        labels: The labels the run was trained with.

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
    create_witness(folder / WITNESS_NAME, Witness(header.id, header.revision))
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
    passed = {*leftovers(source), *source.glob(f"{FILE_NAME}*"), source / WITNESS_NAME}
    passed.add(source / CACHE)
    found: Signatures = {}
    for place in sorted(source.iterdir()):
        if place in passed:
            continue
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.is_file():
                stat = file.stat()
                found[str(file.relative_to(source))] = (
                    stat.st_ino,
                    stat.st_size,
                    stat.st_mtime_ns,
                )
    return found
