"""Training again with some new rows: from the run of yesterday, and from nothing.

    python -m bench training warm-start DATA [--text title] [--seeds 17 18 19] [--share 0.05]
        [--set train.epochs=8 ...] [--out rows.json]

A share of the training rows is new today. Yesterday's run is trained on the others, with those
labels alone that occur in them. Today's data is all of it: it is trained on from nothing
(``retrained``) and from yesterday's run (``continued``, ``train(from_run=...)`` with its default
schedule). The settings of ``--set`` are those of the trainings from nothing. Metrics are of the
ensemble on the test split, seconds are of a whole call of ``train``. The last lines compare the two
text by text: the mean difference and twice its standard error over texts and seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import options
from bench.common.results import facts, save
from bench.common.tables import Table
from bench.common.timing import Stopwatch
from bench.common.training_runs import scratch_folder
from bench.training.small_data import narrowed

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5")
PAIRED = (1, 5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19])
    parser.add_argument("--share", type=float, default=0.05, help="of the rows, which are new")
    options.add_settings(parser)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    import umpteen

    data = umpteen.load_dataset(args.data)
    about, rows = facts("cpu"), []
    table = Table(["seed", "run", "texts", "labels", "wall s", "CPU s", *METRICS])
    gaps: dict[int, list[np.ndarray]] = {k: [] for k in PAIRED}
    for seed in args.seeds:
        settings = [f"seed={seed}", f"data.text={args.text}", *args.settings]
        found: dict[str, dict[int, np.ndarray]] = {}
        with scratch_folder() as folder:
            for name, part, how in plans(data, args.share, seed, settings, folder):
                row, found[name] = measured(data, part, folder, name, how)
                rows.append({"seed": seed, "run": name, **row})
                table.add(*rows[-1].values())
                save(args.out, rows, **about)
        for k in PAIRED:
            gaps[k].append(found["continued"][k] - found["retrained"][k])
    for k, values in gaps.items():
        gap = np.concatenate(values)
        error = 2 * gap.std() / np.sqrt(len(gap))
        print(f"continued - retrained, P@{k}: {gap.mean():+.2f} ± {error:.2f} points")


def plans(
    data: Any, share: float, seed: int, settings: list[str], folder: Path
) -> list[tuple[str, Any, dict[str, Any]]]:
    """The three trainings: name, data, arguments."""
    yesterday = without_new(data, share, seed)
    return [
        ("yesterday", yesterday, {"overrides": settings}),
        ("retrained", data, {"overrides": settings}),
        ("continued", data, {"from_run": folder / "yesterday"}),
    ]


def without_new(data: Any, share: float, seed: int) -> Any:
    """The data without a share of its training rows, and without labels that only these have."""
    from umpteen.data.labels import LabelSet

    train = data["train"]
    order = np.random.default_rng([seed, 5]).permutation(len(train))
    old = train.select(np.sort(order[int(round(share * len(train))) :]))
    kept = np.flatnonzero(old.targets.getnnz(axis=0))
    every, some = data.labels, kept.tolist()
    labels = LabelSet(
        [every.ids[row] for row in some],
        [every.titles[row] for row in some],
        None if every.contents is None else [every.contents[row] for row in some],
    )
    return dataclasses.replace(data, labels=labels, splits={"train": narrowed(old, kept)})


def measured(
    data: Any, part: Any, folder: Path, name: str, how: dict[str, Any]
) -> tuple[dict[str, Any], dict[int, np.ndarray]]:
    """One training, its test metrics, and precision text by text."""
    import umpteen

    with Stopwatch() as training:
        model = umpteen.train(
            part, out=folder / name, device="cpu", cache=folder / f"{name}-tokens", **how
        )
    test = data["test"]
    heads = umpteen.evaluate(model, data, split="test", metrics=METRICS).heads
    row = {
        "texts": len(part["train"]),
        "labels": len(part.labels),
        "wall": round(training.wall, 1),
        "cpu": round(training.cpu, 1),
        **{metric: round(heads["ensemble"].values[metric], 2) for metric in METRICS},
    }
    return row, precisions(model, test, data.labels) if name != "yesterday" else {}


def precisions(model: Any, test: Any, labels: Any) -> dict[int, np.ndarray]:
    """By k, (N,) the precision of the first k labels of each text, percent; filters left out."""
    from umpteen.ranking.queries import Queries

    texts = test.texts(model.text_config.text)
    queries = Queries(texts, model.vectors(texts))
    found = model.rank(queries, model.snapshot(), max(PAIRED), exclude=test.filters)
    assert list(model.labels.ids) == list(labels.ids)
    truth = test.filtered_targets()
    hits = np.asarray(truth[np.arange(len(texts))[:, None], np.maximum(found.rows, 0)].todense())
    hits = (hits > 0) & (found.rows >= 0)
    return {k: 100.0 * hits[:, :k].mean(axis=1) for k in PAIRED}
