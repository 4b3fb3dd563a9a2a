"""A loaded run: its predictor, its store, and whether it should get traffic."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder
from umpteen.store import ChangeStore

Stamp = tuple[object, ...]


@dataclass(frozen=True)
class ServedModel:
    """A loaded run; a request uses one version from its first to its last text."""

    name: str
    """Under which it is served."""
    predictor: Predictor
    run: str
    """As it was given; may be a link."""
    folder: Path
    model: str
    stamp: Stamp
    loaded: str
    """UTC, ISO 8601."""

    @property
    def store(self) -> ChangeStore:
        """The run's store of changes."""
        return self.predictor.require_store()

    @property
    def n_labels(self) -> int:
        """Labels that can be predicted now."""
        state = self.store.state()
        return state.n_labels - len(state.retired_rows)

    def problem(self) -> str | None:
        """Return why this version should get no traffic; None while all is well."""
        if not RunFolder(self.folder).config.is_file():
            return "the run folder is gone"
        damage = self.store.damage
        if damage is None:
            return None
        return f"the store of changes {damage.detail}; repair it with: umpteen repair"


def load_served_model(
    name: str, run: str, device: str, backend: str = "torch", budget_ms: float | None = None
) -> ServedModel:
    """Load a run and predict once, so that the first request takes no longer than others.

    Args:
        name: Under which to serve it.
        run: The folder, or a link to one.
        device: ``auto``, ``cpu`` or ``cuda``.
        backend: What runs a transformer; see ``Predictor.load``.
        budget_ms: Limits the candidates that are re-ranked, where the run has that stage.

    Raises:
        RunError: If the run is not complete.
    """
    stamp = stamp_of(run)
    folder = Path(run).resolve()
    predictor = Predictor.load(folder, device=device, tolerant=True, backend=backend)
    predictor.predict(["warm"], 1)
    if budget_ms is not None and predictor.reranking is not None:
        predictor.limit_reranking(budget_ms)
    model = RunFolder(folder).model("best").name
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return ServedModel(name, predictor, run, folder, model, stamp, now)


def stamp_of(run: str) -> Stamp:
    """Return a value that differs when the run has a new model, index or ensemble, or moved."""
    folder = Path(run).resolve()
    files = ("models.json", "index", "labels.jsonl", "ensemble/ensemble.json")
    stats = []
    for name in files:
        try:
            stat = os.stat(folder / name)
            stats.append((stat.st_ino, stat.st_mtime_ns))
        except (FileNotFoundError, NotADirectoryError):
            stats.append((0, 0))
    return (str(folder), *stats)
