"""What a run of a study comes to: the values of its result, and those of single test queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.evaluation import Evaluation
from umpteen.files import atomic_file, read_json
from umpteen.report.history import read_history
from umpteen.run_folder import RunFolder
from umpteen.study.definition import Run


def result_file(out: Path, run: Run) -> Path:
    """Return where a run's result is kept."""
    return out / "results" / f"{run.name}.json"


def measured(found: Evaluation) -> dict[str, Any]:
    """Return the part of a result that the test split decides."""
    return {
        "heads": {
            head: {"metrics": report.values, "bins": list(report.bins)}
            for head, report in found.heads.items()
        },
        "n": next(iter(found.heads.values())).n,
        "propensity": found.as_json()["propensity"],
        **({"sets": found.sets} if found.sets else {}),
    }


def trained(folder: RunFolder) -> dict[str, Any]:
    """Return the part of a result that training decides."""
    history = read_history(folder)
    validations = read_json(folder.metrics)["validation"] if folder.metrics.is_file() else []
    return {
        "train_seconds": history.steps.seconds if history.steps else 0.0,
        "steps": int(history.steps.steps[-1]) if history.steps else 0,
        "epochs": history.reached,
        "best_epoch": history.model_epoch,
        "pool": pool_means(folder),
        "validation": validations,
    }


def pool_means(folder: RunFolder) -> dict[str, float]:
    """Return the mean labels of a step's pool, and the mean positives in it per query."""
    lines = [json.loads(line) for line in folder.steps.read_text("utf-8").splitlines()]
    keys = ("labels", "positives")
    return {key: float(np.mean([line[key] for line in lines] or [0.0])) for key in keys}


def per_query_file(out: Path, run: Run) -> Path:
    """Return where the values of a run's test queries are kept, for paired tests."""
    return out / "per_query" / f"{run.name}.npz"


def write_per_query(out: Path, run: Run, found: Evaluation) -> None:
    """Keep P and PSP of every test query and head, in half precision."""
    values: dict[str, Any] = {
        f"{head}/{metric}": each.astype(np.float16)
        for head, report in found.heads.items()
        for metric, each in report.per_query.items()
        if metric.startswith(("P@", "PSP@"))
    }
    file = per_query_file(out, run)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, **values)
