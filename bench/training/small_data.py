"""Small data: what it brings to hold more or fewer queries out for the ensemble.

    python -m bench training small-data DATA [--text title] [--sizes 300 600 1200] [--seeds 17 18]
        [--ways default validation.share=0.03 "validation.share=0.2 ensemble.min_queries=20"]
        [--out rows.json]

A subset of so many queries is drawn from the train split, with those labels alone that occur in
it; the judges are other training queries that have one of these labels, at most ``--judges``. The
data's own validation and test splits are never read. A way is the default that chooses with some
settings; ``default`` has none. The answer is the one ``predict`` would give: the ensemble where one
was fitted, else the combined head. ``combined`` stands beside it, and ``held``, the queries with
labels that were held out.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np

from bench.common import options
from bench.common.results import facts, save
from bench.common.tables import Table
from bench.common.timing import Stopwatch
from bench.common.training_runs import scratch_folder

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
LEFT = ("queries", "labels", "seed", "way", "held", "answer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 600, 1200])
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18])
    parser.add_argument("--ways", nargs="+", default=["default", "validation.share=0.03"])
    parser.add_argument("--judges", type=int, default=1500)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    import umpteen

    data = umpteen.load_dataset(args.data)
    rows: list[dict[str, Any]] = []
    about = facts("cpu")
    table = Table([*LEFT, *METRICS, *(f"combined {metric}" for metric in METRICS), "s"])
    for size in args.sizes:
        for seed in args.seeds:
            small = subset(data, size, args.judges, seed)
            for way in args.ways:
                row = measured(small, way, args.text, seed)
                rows.append(row)
                table.add(*row.values())
                save(args.out, rows, **about)


def subset(data: Any, size: int, judges: int, seed: int) -> Any:
    """Some training queries as all there is, and others, as the test split, to judge by."""
    from umpteen.data.labels import LabelSet

    train = data["train"]
    positives = train.filtered_targets()
    order = np.random.default_rng([seed, size]).permutation(len(train))
    kept = np.flatnonzero(positives[order[:size]].getnnz(axis=0))
    others = order[size:]
    others = others[positives[others][:, kept].getnnz(axis=1) > 0][:judges]
    parts = {"train": order[:size], "test": others}
    splits = {name: narrowed(train.select(rows), kept) for name, rows in parts.items()}
    every, some = data.labels, kept.tolist()
    labels = LabelSet(
        [every.ids[row] for row in some],
        [every.titles[row] for row in some],
        None if every.contents is None else [every.contents[row] for row in some],
    )
    return dataclasses.replace(data, labels=labels, splits=splits)


def narrowed(split: Any, kept: Any) -> Any:
    """The split with some of its labels."""
    columns = np.full(split.targets.shape[1], -1, np.int64)
    columns[kept] = np.arange(len(kept))
    pairs = np.column_stack([split.filters[:, 0], columns[split.filters[:, 1]]])
    return dataclasses.replace(
        split, targets=split.targets[:, kept], filters=pairs[pairs[:, 1] >= 0]
    )


def measured(data: Any, way: str, text: str, seed: int) -> dict[str, Any]:
    """One training and its answers."""
    import umpteen
    from umpteen.config.loading import load_config
    from umpteen.training.prepare import training_splits

    own = [] if way == "default" else way.split()
    with scratch_folder() as folder:
        with Stopwatch() as training:
            model = umpteen.train(
                data,
                out=folder / "run",
                overrides=[f"seed={seed}", f"data.text={text}", *own],
                device="cpu",
                cache=folder / "tokens",
            )
        settings = load_config(str(folder / "run" / "config.json"))
        held = training_splits(data, settings)
        n = held["validation"].filtered_targets() if "validation" in held else None
        heads = umpteen.evaluate(model, data, split="test", metrics=METRICS).heads
    answer = "ensemble" if "ensemble" in heads else "combined"
    facts_of_row = (
        len(data["train"]),
        len(data.labels),
        seed,
        way,
        0 if n is None else int((n.getnnz(axis=1) > 0).sum()),
        answer,
    )
    return {
        **dict(zip(LEFT, facts_of_row, strict=True)),
        **{metric: heads[answer].values[metric] for metric in METRICS},
        **{f"combined {metric}": heads["combined"].values[metric] for metric in METRICS},
        "seconds": training.wall,
    }
