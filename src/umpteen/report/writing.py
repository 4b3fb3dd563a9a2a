"""``write_report``: from a run folder to the page on disk."""

from __future__ import annotations

from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.errors import RunError
from umpteen.files import atomic_file
from umpteen.predictor import Predictor
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.report.history import read_history
from umpteen.report.outcomes import Outcome, outcome_on_examples, outcome_on_split
from umpteen.report.page import render_page
from umpteen.run_folder import RunFolder

FILE_NAME = "report.html"


def write_report(
    run: str | Path,
    *,
    data: Dataset | None = None,
    split: str = "test",
    out: str | Path | None = None,
    device: str = "auto",
) -> Path:
    """Write one self-contained HTML page about a run.

    Without data the heads are scored on the run's own examples (up to 1,000 validation queries);
    with data, on the whole split. A run that was stopped before its first model gets a page with
    curves and settings alone.

    Args:
        run: The run folder.
        data: The data to evaluate on.
        split: Which part of it.
        out: The page; ``RUN/report.html`` if left out.
        device: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        Where the page is.

    Raises:
        RunError: If the folder holds no run, or a part of it is missing or damaged.
        LabelMismatch: If run and data have different labels.
        DataError: If the data has no such split.
    """
    folder = RunFolder(run)
    history = read_history(folder)
    outcome: Outcome | None = None
    missing = ""
    ensemble: EnsembleModel | None = None
    if history.model_epoch is None:
        missing = (
            "The run has saved no trained model yet, so there are no predictions to score. "
            "Make this page again after its first validation."
        )
        n_labels = len(folder.read_labels()[0])
    else:
        predictor = Predictor.load(folder.path, device=device).as_trained()
        n_labels = len(predictor.labels)
        ensemble = predictor.ensemble
        if data is not None:
            outcome = outcome_on_split(predictor, data, split)
        else:
            outcome = outcome_on_examples(predictor, folder)
    name = folder.path.resolve().name
    page = render_page(name, history, outcome, n_labels=n_labels, missing=missing, model=ensemble)
    target = Path(out) if out is not None else folder.path / FILE_NAME
    if not target.parent.is_dir():
        raise RunError(f"{target.parent} is no folder; make it first, or name another --out")
    with atomic_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target
