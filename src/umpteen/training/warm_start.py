"""``train(..., from_run=RUN)``: settings, weights and label vectors of an earlier run.

A run that starts from another one keeps what it took over in its folder ``from``, so that it can
be resumed without the other run:

from/origin.json    the other run, and the schedule of its own training
from/known.npy      the row of each label in the other run, -1 for a new label
from/ensemble.json  the weights of its ensemble
from/names, .npy    what scores label names, of a run that was started from them
from/...            its changes and the texts it held out, see ``previous_changes``
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError, RunError
from umpteen.files import LOAD_ERRORS, atomic_folder, read_json, write_json
from umpteen.model.chunked import ChunkedEncoder
from umpteen.model.model import Model
from umpteen.model.storage import load_model
from umpteen.ranking.retrievers.names import MODEL, Names
from umpteen.run_folder import UNTRAINED, RunFolder
from umpteen.training.build_loop import set_label_graph_
from umpteen.training.factories import build_model, in_chunks
from umpteen.training.previous_changes import PreviousChanges, read_changes
from umpteen.training.warm_settings import schedule_of
from umpteen.types import Log

CARRIED = ("dual_head", "classifier_head", "log_scales")
"""Weights outside the encoder that are taken over as they are."""


@dataclass(frozen=True)
class WarmStart:
    """What a run takes over from another one."""

    folder: Path
    """The run that is trained."""
    run: Path
    """The other run."""
    known: NDArray[np.int64]
    """(L,) row of each label in the other run, -1 for a new label."""
    changes: PreviousChanges
    schedule: dict[str, Any]
    """Settings of the schedule that the other run was trained with, before it was shortened."""

    @property
    def trained(self) -> bool:
        """Whether the other run has been trained, and weights of heads and labels are known."""
        return bool(self.schedule)

    @classmethod
    def begin(cls, folder: RunFolder, run: RunFolder, data: Dataset, *, changes: bool) -> None:
        """Read the other run and write what is taken over into the folder of the new one."""
        labels, _ = run.read_labels()
        carried = read_changes(run, labels, changes=changes)
        own = carried.all_labels(data.labels)
        known = np.fromiter(map(labels.rows.get, own.ids, repeat(-1)), np.int64, len(own))
        about = {"run": str(run.path.resolve()), "changes": changes, "schedule": schedule_of(run)}
        with atomic_folder(folder.origin, replace=True) as temporary:
            np.save(temporary / "known.npy", known, allow_pickle=False)
            carried.save(temporary)
            names = names_of(run)
            if names is not None:
                shutil.copytree(names, temporary / "names")
                same = _same_texts(own, labels, known)
                np.save(temporary / "names.npy", np.where(same, known, -1), allow_pickle=False)
            weights = run.ensemble / "ensemble.json"
            if weights.is_file():
                shutil.copyfile(weights, temporary / weights.name)
            write_json(temporary / "origin.json", about)

    @classmethod
    def of(cls, folder: RunFolder) -> WarmStart | None:
        """Return what a run has taken over; None where it did not start from another one.

        Raises:
            RunError: If the files are damaged.
        """
        if not folder.origin.is_dir():
            return None
        about = read_json(folder.origin / "origin.json", error=RunError)
        try:
            known = np.load(folder.origin / "known.npy", allow_pickle=False)
            changes = PreviousChanges.load(folder.origin)
            return cls(folder.path, Path(about["run"]), known, changes, dict(about["schedule"]))
        except LOAD_ERRORS as error:
            raise RunError(f"{folder.origin} is damaged: {error}; start a new run") from error

    def build_model(self, settings: RunConfig, dataset: Dataset) -> tuple[Model, Any]:
        """Return a model with the encoder and the heads of the other run, and its tokenizer.

        Label vectors are zeros until ``known_vectors_`` and the first vectors of new labels.
        """
        other, tokenizer, _ = load_model(RunFolder(self.run).model("best"))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)  # for heads that the other run does not have
            encoder = other.encoder
            if not isinstance(encoder, ChunkedEncoder):  # one of a run without training may grow
                encoder = in_chunks(encoder, tokenizer, settings.data)
            model = build_model(settings, encoder, len(dataset.labels))
        if self.trained:
            weights = other.state_dict()
            taken = {k: v for k, v in weights.items() if k.startswith(CARRIED)}
            model.load_state_dict(taken, strict=False)
        set_label_graph_(model, dataset, settings)
        return model.train(), tokenizer

    def names(self, labels: LabelSet, device: torch.device) -> Names | None:
        """Return the scorer of label names; None where the other run had none."""
        origin = RunFolder(self.folder).origin
        if not (origin / "names").is_dir():
            return None
        try:
            known = np.load(origin / "names.npy", allow_pickle=False)
        except LOAD_ERRORS as error:
            raise RunError(f"{origin} is damaged: {error}; start a new run") from error
        return Names.of_model(origin / "names", labels, known, device)

    def known_rows(self, ranks: Ranks = ONE_RANK) -> torch.Tensor:
        """Return the rows of a rank's label table whose labels were known before."""
        own = ranks.shard(len(self.known))
        return torch.from_numpy(np.flatnonzero(self.known[own.start : own.stop] >= 0))

    def known_vectors_(self, model: Model, ranks: Ranks = ONE_RANK) -> None:
        """Copy the label vectors of the other run to the labels that both have.

        Raises:
            RunError: If the vectors cannot be read.
        """
        rows = self.known_rows(ranks)
        if model.label_vectors is None or not self.trained or not len(rows):
            return
        file = RunFolder(self.run).model("best") / "heads.safetensors"
        try:
            with safe_open(file, "pt") as stored:
                vectors = stored.get_tensor("label_vectors")
        except (*LOAD_ERRORS, SafetensorError) as error:
            raise RunError(f"{file} is damaged: {error}") from error
        table, own = model.label_vectors.data, ranks.shard(len(self.known))
        theirs = torch.from_numpy(self.known[own.start : own.stop])[rows]
        table[rows.to(table.device)] = vectors[theirs].to(table)


def _same_texts(own: LabelSet, before: LabelSet, known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (L,) which of the known labels have the title and content that they had before."""
    ours, theirs = own.encoder_texts(), before.encoder_texts()
    return np.array(
        [r >= 0 and theirs[r] == text for r, text in zip(known.tolist(), ours, strict=True)], bool
    )


def names_of(run: RunFolder) -> Path | None:
    """Return the model that a run scores label names with; None for a run without one.

    A run that was not trained is such a model; one that was trained from it has kept it.
    """
    kept = run.ensemble / "names" / MODEL
    if kept.is_dir():
        return kept
    own = run.model("best")
    return None if run.n_train() or own.name == UNTRAINED else own


def with_changes_taken_over(folder: RunFolder, data: Dataset, which: str) -> Dataset:
    """Return data as a run was trained on it: with the changes of the run it started from."""
    start = WarmStart.of(folder)
    return data if start is None else start.changes.applied(data, which)


def require_origin(run: str | Path) -> RunFolder:
    """Return a run that another one can start from.

    Raises:
        RunError: If it is no run, or has not finished an epoch.
    """
    folder = RunFolder(run).require()
    if folder.n_train() and folder.model("best").name == UNTRAINED:
        raise RunError(
            f"{folder.path} has not finished an epoch, so there is nothing to start from; finish "
            "it with --resume, or leave --from out"
        )
    return folder


def require_same_origin(folder: RunFolder, from_run: str | Path | None) -> None:
    """Raise if a command that resumes a run names another run to start from.

    Raises:
        ConfigError: If it does.
    """
    if from_run is None:
        return
    start = WarmStart.of(folder)
    if start is None or Path(from_run).resolve() != start.run:
        how = "without --from" if start is None else f"from {start.run}"
        raise ConfigError(
            f"{folder.path} was started {how}, not from {from_run}; leave --from out to resume it, "
            "or start a new run with another --out"
        )


def describe(start: WarmStart, data: Dataset, log: Log) -> None:
    """Log what is taken over from the other run."""
    n_before = len(RunFolder(start.run).read_labels()[0])
    known = int((start.known >= 0).sum())
    parts = [f"{known:,} labels known", f"{len(data.labels) - known:,} new"]
    if n_before > known:
        parts.append(f"{n_before - known:,} dropped, which are not in the data")
    log(f"Starting from {start.run}: {', '.join(parts)}")
    for line in start.changes.sentences():
        log(line)
