"""What a run of a study comes to: its values, those of test queries, and of groups of labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.dataset import Dataset
from umpteen.evaluation import Evaluation
from umpteen.files import atomic_file, read_json
from umpteen.predictor import Predictor
from umpteen.ranking.queries import Queries
from umpteen.report.history import read_history
from umpteen.run_folder import RunFolder
from umpteen.scoring import score
from umpteen.study.definition import Run
from umpteen.types import TopK

EXTRA_METRICS = ("RP@5", "nDCG@5")
DEPTH = 5


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


def group_metrics(
    model: Predictor,
    data: Dataset,
    groups: Mapping[str, Sequence[int]],
    *,
    head: str | None = None,
    metrics: Sequence[str] = EXTRA_METRICS,
) -> dict[str, dict[str, float]]:
    """Rank the labels of each group alone and compare them with the positives of the group.

    Texts without a positive in a group do not count there.

    Args:
        model: A predictor; changes made after its training do not count.
        data: With the splits train and test.
        groups: Name to the least and most training texts of a label of the group.
        head: Which; by default the best.
        metrics: What to compute, of at most ``DEPTH`` places.

    Returns:
        Group to its metrics in percent, the number of its labels and of the texts that count.
    """
    model = model.as_trained()
    split, counts = data["test"], np.asarray(data.label_counts)
    texts = list(split.texts(model.text_config.text))
    queries, snapshot = Queries(texts, model.vectors(texts)), model.snapshot()
    found: dict[str, dict[str, float]] = {}
    for name, (least, most) in groups.items():
        own = (counts >= least) & (counts <= most)
        targets = sp.csr_matrix(split.targets @ sp.diags(own.astype(np.float32)))
        targets.eliminate_zeros()
        chosen = np.flatnonzero(np.diff(targets.indptr))
        found[name] = {"labels": int(own.sum()), "texts": len(chosen)}
        if not len(chosen):
            continue
        top = model.rank(queries, snapshot, DEPTH, head=head, allowed=own, exclude=split.filters)
        part = replace(split, targets=targets).select(chosen)
        report = score(
            TopK(top.rows[chosen], top.scores[chosen]),
            part,
            label_counts=counts,
            n_train=len(data["train"]),
            propensity=data.propensity,
            metrics=metrics,
        )
        found[name] |= report.values
    return found
