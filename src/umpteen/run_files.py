"""Run folders without a name: temporary ones, and the files of a run as bytes.

Bytes hold what the folder holds: safetensors, JSON, NumPy and SQLite files. No code is among them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from umpteen.data.labels import LabelSet
from umpteen.errors import RunError
from umpteen.files import digest, write_json
from umpteen.run_folder import RunFolder
from umpteen.store.backup import backup

_NOT_NEEDED = ("checkpoints", "cache", "tensorboard")
"""Folders of a run that predictions do not need."""


class TemporaryRun:
    """A run folder that is removed when this object is, or when the process ends.

    Predictors hold it, so that the folder lives as long as the last of them.
    """

    def __init__(self) -> None:
        self.parent = Path(tempfile.mkdtemp(prefix="umpteen-"))
        self.path = self.parent / "run"
        """The run folder; its name is free for ``train``."""
        weakref.finalize(self, _remove, self.parent, os.getpid())


def _remove(folder: Path, process: int) -> None:
    # A forked process has a copy of the object; the folder belongs to the process that made it.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def run_digest(folder: Path) -> str:
    """Return what identifies a run: its settings and the names of its models.

    Raises:
        RunError: If the folder is no run.
    """
    try:
        return digest(folder / "config.json") + digest(folder / "models.json")
    except OSError as error:
        raise RunError(
            f"{folder} is not a run folder any more ({error.strerror}: {error.filename})"
        ) from error


def pack_run(folder: Path, labels: LabelSet, *, which: str = "best") -> dict[str, bytes]:
    """Return the files of a run that predictions need, by their path in the folder.

    Args:
        folder: The run folder.
        labels: The labels the run was trained with.
        which: The one model to keep, ``best`` or ``last``.

    Returns:
        Path with slashes to content, as of one moment.

    Raises:
        RunError: If the folder is no run.
    """
    run_digest(folder)
    copy = TemporaryRun()
    backup(folder, copy.path, labels)
    model = RunFolder(copy.path).model(which).relative_to(copy.path).as_posix()
    if which == "best":
        write_json(copy.path / "models.json", {"best": model, "last": model})
    names = [
        file.relative_to(copy.path).as_posix()
        for file in sorted(copy.path.rglob("*"))
        if file.is_file()
    ]
    return {
        name: (copy.path / name).read_bytes()
        for name in names
        if name.partition("/")[0] not in _NOT_NEEDED
        and (not name.startswith("models/") or name.startswith(f"{model}/"))
    }


def unpack_run(files: Mapping[str, bytes]) -> TemporaryRun:
    """Write the files of a run to a temporary folder.

    Raises:
        RunError: If a name points outside the folder.
    """
    run = TemporaryRun()
    for name, content in files.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\\" in name or not parts.parts:
            raise RunError(f"a packed run names the file {name!r}, which is outside its folder")
        place = run.path / parts
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return run
