"""The run folder: what is where, and the small files that name the current model.

RUN/config.json       settings, versions, seed and fingerprints, as resolved
RUN/labels.jsonl      the label set, one line per row
RUN/label_metadata.jsonl  broader labels and notations, where the vocabulary has any
RUN/labels.columns    the same once more, as arrays that are mapped
RUN/models/epoch-N/   model folders; ``models.json`` names the best and the last
RUN/metrics.json      validation history
RUN/steps.jsonl       one line per step
RUN/log.txt           progress lines with times, from the first second on
RUN/columns.json      columns and separators named in the command; texts to predict are read alike
RUN/examples.jsonl    some validation queries with their labels
RUN/held_out.npy      digests of the validation texts
RUN/from/             what was taken over from another run, where training started from one
RUN/checkpoints/      to continue from
RUN/index/HEAD/       a search index, where one was built
RUN/ensemble/         examples, retrievers and weights of the ensemble, where it was fitted
RUN/changes.sqlite    labels added and retired and examples added since training (umpteen.store)
RUN/changes.revision  number of changes granted, to notice a store that is lost or older
RUN/cache/            vectors and weights of changes; can be deleted at any time
"""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Propensity
from umpteen.data.label_columns import read_columns, write_columns
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError, LabelMismatch, RunError
from umpteen.files import LOAD_ERRORS, atomic_file, leftovers, read_json, write_json
from umpteen.registry import refuse_code

LINES_AT_ONCE = 10_000
UNTRAINED = "epoch-0000"
"""The model folder of a run that has not finished an epoch."""


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.steps = self.path / "steps.jsonl"
        self.log = self.path / "log.txt"
        self.columns = self.path / "columns.json"
        self.metrics = self.path / "metrics.json"
        self.examples = self.path / "examples.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.models = self.path / "models"
        self.held_out = self.path / "held_out.npy"
        self.origin = self.path / "from"
        self.index = self.path / "index"
        self.ensemble = self.path / "ensemble"

    def require(self) -> RunFolder:
        """Return this folder if it holds a run.

        Raises:
            RunError: If it does not.
        """
        if not self.config.is_file():
            if self.log.is_file():
                raise RunError(
                    f"{self.path}: the first step has not been taken (last line of log.txt: "
                    f"{self._last_line()}); wait for the training, or if it was stopped repeat its "
                    "command with --resume"
                )
            raise RunError(
                f"{self.path} is not a run folder (no config.json); make one with umpteen train"
            )
        return self

    def busy(self) -> RunError:
        """Return the error of a second training in this folder."""
        return RunError(
            f"another training writes to {self.path}; wait until it ends, or name another folder"
        )

    def _last_line(self) -> str:
        with self.log.open("rb") as lines:
            lines.seek(-min(1000, self.log.stat().st_size), 2)
            return (lines.read().decode("utf-8", "replace").splitlines() or ["none"])[-1]

    def require_empty(self) -> None:
        """Raise unless a new run may be made here.

        Raises:
            RunError: If something is in the way.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file; name a new folder for the run")
        if not self.is_new():
            raise RunError(
                f"{self.path} is not empty; continue the run in it with --resume, or name another"
            )

    def is_new(self) -> bool:
        """Return whether no run was begun here: a kill may have left a log or a temporary name."""
        if not self.path.exists():
            return True
        return not set(self.path.iterdir()) - {*self._early(), *leftovers(self.path)}

    def write_log(self, text: str) -> None:
        """Add a line with the time of day to ``log.txt``; the folder is made where needed."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as out:
            out.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")

    def write_columns(self, options: dict[str, Any]) -> None:
        """Write how tables are read, as far as the command says it."""
        self.path.mkdir(parents=True, exist_ok=True)
        names = ("text_columns", "id_column", "delimiter", "header")
        write_json(self.columns, {name: options[name] for name in names})

    def read_columns(self) -> dict[str, Any]:
        """Return how tables were read in training; empty where the command did not say it.

        Raises:
            RunError: If the file is damaged.
        """
        if not self.columns.is_file():
            return {}
        found = read_json(self.columns, error=RunError)
        if not isinstance(found, dict):
            raise RunError(f"{self.columns} is damaged: expected an object")
        return found

    def example_texts(self, n: int) -> list[str]:
        """Return the first n texts of ``examples.jsonl``; fewer where there are fewer or none."""
        try:
            lines = self.examples.read_text("utf-8").split("\n")[:n]
            return [str(json.loads(line)["text"]) for line in lines if line]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def _early(self) -> tuple[Path, ...]:
        """Return what is written before the settings."""
        return self.log, self.columns, self.origin

    def read_settings(self, *, to_build: bool = False) -> dict[str, Any]:
        """Return the settings the run was started with.

        Args:
            to_build: Whether parts are built from them: then they must not name code.

        Raises:
            RunError: If this is no run, they are damaged, or they name code to import.
        """
        written = read_json(self.require().config, error=RunError)
        settings = written.get("config") if isinstance(written, dict) else None
        if not isinstance(settings, dict):
            raise RunError(f"{self.config} is damaged: it holds no settings")
        if to_build:
            refuse_code(settings, source=self.config)
        return settings

    def n_train(self) -> int:
        """Return the number of training texts; 0 where it was not written."""
        written = read_json(self.require().config, error=RunError)
        about = written.get("data") if isinstance(written, dict) else None
        count = about.get("n_train") if isinstance(about, dict) else None
        return count if isinstance(count, int) else 0

    def propensity(self) -> Propensity | None:
        """Return the propensity constants of the settings; None where those of the data count."""
        about = self.read_settings().get("data")
        about = about if isinstance(about, dict) else {}
        a, b = about.get("propensity_a"), about.get("propensity_b")
        return None if a is None or b is None else Propensity(a, b)

    def take_back_settings(self) -> None:
        """Leave no trace of a run that could not be set up; one with more in it is left alone."""
        if self.path.is_dir() and set(self.path.iterdir()) <= {self.config, *self._early()}:
            shutil.rmtree(self.origin, ignore_errors=True)
            for file in (self.config, self.log, self.columns):
                file.unlink(missing_ok=True)
            self.path.rmdir()

    def model(self, which: str = "best") -> Path:
        """Return the folder of the best or the last model.

        Raises:
            RunError: If no model has been written yet.
        """
        file = self.path / "models.json"
        names = read_json(file, error=RunError)
        if not isinstance(names, dict):
            raise RunError(f"{file} is damaged: expected an object that names best and last")
        if which not in names:
            raise RunError(f"{self.path} has no {which!r} model; it has: {', '.join(names)}")
        return self.path / str(names[which])

    def point(self, **names: Path) -> None:
        """Name the best and last model folders, then remove what belongs to no named one."""
        file = self.path / "models.json"
        known = read_json(file) if file.is_file() else {}
        known.update({which: str(folder.relative_to(self.path)) for which, folder in names.items()})
        before = read_json(file).get("best") if file.is_file() else None
        write_json(file, known)
        if known.get("best") != before:
            # They hold vectors of the old best model.
            shutil.rmtree(self.index, ignore_errors=True)
            shutil.rmtree(self.ensemble, ignore_errors=True)
        for folder in self.models.iterdir():
            if str(folder.relative_to(self.path)) not in known.values():
                shutil.rmtree(folder, ignore_errors=True)

    def write_labels(self, labels: LabelSet, counts: NDArray[np.int64]) -> None:
        """Write the label list with each label's number of training queries."""
        contents = labels.contents if labels.contents is not None else [None] * len(labels)
        with (
            atomic_file(self.path / "labels.jsonl") as temporary,
            temporary.open("w", encoding="utf-8") as out,
        ):
            for label_id, title, content, count in zip(
                labels.ids, labels.titles, contents, counts.tolist(), strict=True
            ):
                line: dict[str, Any] = {"id": label_id, "text": title, "count": count}
                if content is not None:
                    line["content"] = content
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
        if labels.metadata is not None:
            known = zip(labels.ids, labels.metadata, strict=True)
            with (
                atomic_file(self.path / "label_metadata.jsonl") as temporary,
                temporary.open("w", encoding="utf-8") as out,
            ):
                for label_id, about in known:
                    if about:
                        out.write(json.dumps({"id": label_id, **about}, ensure_ascii=False) + "\n")
        write_columns(self.path / "labels.columns", self.path / "labels.jsonl", labels, counts)

    def read_label_metadata(self) -> dict[str, dict[str, Any]]:
        """Return by label id what a vocabulary says beside names; nothing where none did.

        Raises:
            RunError: If the file is damaged.
        """
        file = self.path / "label_metadata.jsonl"
        if not file.is_file():
            return {}
        try:
            lines = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
            return {line.pop("id"): line for line in lines}
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise RunError(f"{file} is damaged: {error}") from error

    def read_labels(self, fingerprint: str | None = None) -> tuple[LabelSet, NDArray[np.int64]]:
        """Return the label set and the labels' training counts.

        Args:
            fingerprint: What the set must be, where that is known.

        Returns:
            Labels and counts (L,).

        Raises:
            RunError: If the list is missing or damaged.
            LabelMismatch: If it is not the expected set.
        """
        file = self.path / "labels.jsonl"
        try:
            known = read_columns(self.path / "labels.columns", file)
            labels, counts = known if known is not None else _parsed(file.read_text("utf-8"))
            found = labels.fingerprint
        except (*LOAD_ERRORS, DataError) as error:
            raise RunError(f"{file} is missing or damaged: {error}") from error
        if fingerprint is not None and found != fingerprint:
            raise LabelMismatch(
                f"{file} has the fingerprint {found[:12]}, but the model was trained "
                f"with {fingerprint[:12]}; the label list was changed by hand or is of another run"
            )
        return labels, counts


def _parsed(text: str) -> tuple[LabelSet, NDArray[np.int64]]:
    # Not splitlines(): a text may hold other line breaks than ours.
    # One call for many lines: a call for each takes three times as long.
    written = [line for line in text.split("\n") if line]
    with _no_garbage():
        lines = [
            line
            for start in range(0, len(written), LINES_AT_ONCE)
            for line in json.loads(f"[{','.join(written[start : start + LINES_AT_ONCE])}]")
        ]
    has_contents = any("content" in line for line in lines)
    labels = LabelSet(
        [line["id"] for line in lines],
        [line["text"] for line in lines],
        [line.get("content", "") for line in lines] if has_contents else None,
    )
    return labels, np.array([line["count"] for line in lines], dtype=np.int64)


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Pause garbage collection while many lasting objects are made.

    Looking for garbage among them takes as long.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
