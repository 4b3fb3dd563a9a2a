"""Results of studies in few files, written as runs end, and back from there to folders of studies.

A place that takes few files, of a limited size, holds ``results.jsonl``, a line for each run, and
``per_query-1.zip``, ``per_query-2.zip`` and so on with the values of test texts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

RESULTS = "results.jsonl"
ARCHIVES = "per_query-{}.zip"
MAX_BYTES = 14 << 20
"""Of an archive. One that reaches it is followed by another."""


class Collection:
    """The results of runs in one folder.

    Args:
        folder: Where to write; None for nowhere.
        max_bytes: Size at which an archive is full.
    """

    def __init__(self, folder: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._there: set[tuple[str, str]] = set()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._there = {(line["study"], line["run"]) for line in _lines(folder)}

    def add(self, study: str, run: str, result: dict[str, Any], per_query: Path) -> None:
        """Write a run's result, and the values of its test texts where there is such a file.

        A process that is killed while it writes loses at most this run. A run that is there
        already is not written again.
        """
        if self._folder is None or (study, run) in self._there:
            return
        self._there.add((study, run))
        if per_query.is_file():
            self._archive(per_query, f"{study}/{per_query.name}")
        with (self._folder / RESULTS).open("a", encoding="utf-8") as lines:
            # A new line first: the last one may be cut off.
            lines.write("\n" + json.dumps({"study": study, "run": run, **result}) + "\n")

    def _archive(self, file: Path, name: str) -> None:
        assert self._folder is not None
        number = max(1, len(list(self._folder.glob(ARCHIVES.format("*")))))
        archive = self._folder / ARCHIVES.format(number)
        if archive.is_file() and archive.stat().st_size + file.stat().st_size > self._max_bytes:
            archive = self._folder / ARCHIVES.format(number + 1)
        # Of an archive that is cut off while it grows, nothing can be read.
        unfinished = archive.with_name(archive.name + ".part")
        unfinished.unlink(missing_ok=True)
        if archive.is_file():
            shutil.copyfile(archive, unfinished)
        with zipfile.ZipFile(unfinished, "a") as whole:
            whole.write(file, name)
        os.replace(unfinished, archive)


def unpack(folder: Path, out: Path) -> int:
    """Write collected results as ``umpteen study`` keeps them: OUT/STUDY/results and per_query.

    Returns:
        The number of runs.
    """
    from umpteen.files import write_json

    lines = _lines(folder)
    for line in lines:
        file = out / line.pop("study") / "results" / f"{line.pop('run')}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, line)
    for archive in sorted(folder.glob(ARCHIVES.format("*"))):
        with zipfile.ZipFile(archive) as whole:
            for name in whole.namelist():
                file = out / Path(name).parent / "per_query" / Path(name).name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(whole.read(name))
    return len(lines)


def _lines(folder: Path) -> list[dict[str, Any]]:
    """Return the results that are there, but for a line that was cut off."""
    file = folder / RESULTS
    found = []
    for line in file.read_text("utf-8").splitlines() if file.is_file() else ():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found
