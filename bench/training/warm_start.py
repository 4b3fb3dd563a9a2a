"""Training again with some new rows: from the run of yesterday, and from nothing.

    python -m bench training warm-start DATA [--text title] [--seeds 17 18 19] [--share 0.05]
        [--set train.epochs=8 ...] [--continue-set train.epochs=6 ...] [--on train]
        [--rows 10000] [--runs FOLDER] [--out rows.json]

A share of the training rows is new today. Yesterday's run is trained on the others, with those
labels alone that occur in them. Today's data is all of it: it is trained on from nothing
(``retrained``) and from yesterday's run (``continued``, ``train(from_run=...)`` with its default
schedule). The ensemble is fitted on a few hundred held-out texts, and another draw of them moves
its metrics by up to a point. The continued run holds out what yesterday's run held out;
``retrained, same texts`` does too, while ``retrained`` draws its own.

The settings of ``--set`` are those of the trainings from nothing, ``--continue-set`` is laid over
them in the continued run. Metrics are of the ensemble and the combined head on the test split; with
``--on train``, where settings are chosen, on 15 % of the training rows that no run is trained on.
``--rows`` takes some of the training rows alone. Seconds are of a whole call of ``train``. The last
lines compare text by text: the mean difference of the ensembles and twice its standard error over
texts and seeds. ``--runs`` keeps the runs; those that are there are not trained again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import options
from bench.common.results import facts, save
from bench.common.tables import Table
from bench.common.timing import Stopwatch
from bench.common.training_runs import scratch_folder
from bench.training.small_data import narrowed

HEADS = ("ensemble", "combined")
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5")
COMPARED = ("retrained", "retrained, same texts")
PAIRED = ("P@1", "P@5", "PSP@1", "PSP@5")
OWN_TEST = 0.15
"""Of the training rows, the texts of metrics with ``--on train``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19])
    parser.add_argument("--share", type=float, default=0.05, help="of the rows, which are new")
    parser.add_argument("--on", choices=("test", "train"), default="test", help="texts of metrics")
    parser.add_argument("--rows", type=int, help="training rows; all without it")
    parser.add_argument("--continue-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, help="a folder that keeps the runs")
    options.add_settings(parser)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    import umpteen

    whole = umpteen.load_dataset(args.data)
    about, rows = facts("cpu"), []
    table = Table(["seed", "run", "head", "texts", "labels", "wall s", "CPU s", *METRICS])
    gaps: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for seed in args.seeds:
        settings = [f"seed={seed}", f"data.text={args.text}", *args.settings]
        data = chosen_rows(whole, seed, args.rows, own_test=args.on == "train")
        found: dict[str, dict[str, np.ndarray]] = {}
        with kept_or_scratch(args.runs, seed) as folder:
            for name, part, how in plans(data, args.share, seed, settings, folder):
                part = part() if callable(part) else part
                how = {**how, "overrides": args.continue_set} if "from_run" in how else how
                row, found[name] = measured(data, part, folder, name, how)
                for head in row:
                    rows.append({"seed": seed, "run": name, "head": head, **row[head]})
                    table.add(*rows[-1].values())
                save(args.out, rows, **about)
        for name, metric in product(COMPARED, PAIRED):
            gaps[name, metric].append(found["continued"][metric] - found[name][metric])
    for (name, metric), values in gaps.items():
        gap, means = np.concatenate(values), ", ".join(f"{own.mean():+.2f}" for own in values)
        error = 2 * gap.std() / np.sqrt(len(gap))
        print(f"continued - {name}, {metric}: {gap.mean():+.2f} ± {error:.2f} points ({means})")


def kept_or_scratch(runs: Path | None, seed: int) -> AbstractContextManager[Path]:
    """A folder for the runs of one seed."""
    if runs is None:
        return scratch_folder()
    folder = runs / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    return nullcontext(folder)


def plans(
    data: Any, share: float, seed: int, settings: list[str], folder: Path
) -> list[tuple[str, Any, dict[str, Any]]]:
    """The trainings: name, data (or a function that makes it after the others), arguments."""
    yesterday = without_new(data, share, seed)
    return [
        ("yesterday", yesterday, {"overrides": settings}),
        ("retrained", data, {"overrides": settings}),
        ("continued", data, {"from_run": folder / "yesterday"}),
        (
            "retrained, same texts",
            lambda: with_validation(data, folder / "continued"),
            {"overrides": settings},
        ),
    ]


def chosen_rows(data: Any, seed: int, n: int | None, *, own_test: bool) -> Any:
    """The data with n of its training rows, and 15 % of these as test split if it is their own."""
    train = data["train"]
    order = np.random.default_rng([seed, 99]).permutation(len(train))[:n]
    if n is None and not own_test:
        return data
    n_test = int(OWN_TEST * len(order)) if own_test else 0
    test = train.select(np.sort(order[:n_test])) if own_test else data["test"]
    return with_used_labels(data, {"train": train.select(np.sort(order[n_test:])), "test": test})


def without_new(data: Any, share: float, seed: int) -> Any:
    """The data without a share of its training rows, and without labels that only these have."""
    train = data["train"]
    order = np.random.default_rng([seed, 5]).permutation(len(train))
    old = train.select(np.sort(order[int(round(share * len(train))) :]))
    return with_used_labels(data, {"train": old})


def with_validation(data: Any, run: Path) -> Any:
    """The data with the texts that a run held out as its validation split."""
    import umpteen
    from umpteen.ranking.trained_examples import digest_texts, read_digests
    from umpteen.run_folder import RunFolder

    train, which = data["train"], umpteen.Predictor.load(run, device="cpu").text_config.text
    held = np.isin(digest_texts(train.texts(which)), read_digests(RunFolder(run).held_out))
    parts = {"train": train.select(np.flatnonzero(~held))}
    parts["validation"] = train.select(np.flatnonzero(held))
    return dataclasses.replace(data, splits={**data.splits, **parts})


def with_used_labels(data: Any, splits: dict[str, Any]) -> Any:
    """The data with other splits, and with those labels alone that their training rows have."""
    from umpteen.data.labels import LabelSet

    kept = np.flatnonzero(splits["train"].targets.getnnz(axis=0))
    every, some = data.labels, kept.tolist()
    labels = LabelSet(
        [every.ids[row] for row in some],
        [every.titles[row] for row in some],
        None if every.contents is None else [every.contents[row] for row in some],
    )
    own = {name: narrowed(split, kept) for name, split in splits.items()}
    return dataclasses.replace(data, labels=labels, splits=own)


def measured(
    data: Any, part: Any, folder: Path, name: str, how: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One training, its metrics by head, and some of the ensemble's text by text."""
    import umpteen

    seconds, model = trained(part, folder, name, how)
    heads = umpteen.evaluate(model, data, split="test", metrics=METRICS).heads
    about = {"texts": len(part["train"]), "labels": len(part.labels), **seconds}
    rows = {
        head: about | {metric: round(heads[head].values[metric], 2) for metric in METRICS}
        for head in HEADS
        if head in heads  # a setting may leave the ensemble out
    }
    return rows, by_text(model, data) if name != "yesterday" else {}


def trained(
    part: Any, folder: Path, name: str, how: dict[str, Any]
) -> tuple[dict[str, float], Any]:
    """Seconds of a training and its model; both are read where they were kept."""
    import umpteen

    times = folder / f"{name}.json"
    if times.is_file():
        return json.loads(times.read_text()), umpteen.Predictor.load(folder / name, device="cpu")
    with Stopwatch() as training:
        model = umpteen.train(
            part, out=folder / name, device="cpu", cache=folder / f"{name}-tokens", **how
        )
    seconds = {"wall": round(training.wall, 1), "cpu": round(training.cpu, 1)}
    times.write_text(json.dumps(seconds))
    return seconds, model


def by_text(model: Any, data: Any) -> dict[str, np.ndarray]:
    """By metric of the ensemble, (N,) the part of each test text, percent; filters left out."""
    from umpteen.metrics.hits import find_hits
    from umpteen.metrics.parsing import parse_all
    from umpteen.metrics.propensity import inverse_propensities
    from umpteen.ranking.queries import Queries

    test, train, constants = data["test"], data["train"], data.propensity
    texts = test.texts(model.text_config.text)
    assert list(model.labels.ids) == list(data.labels.ids)
    queries = Queries(texts, model.vectors(texts))
    top = model.rank(queries, model.snapshot(), 5, exclude=test.filters)
    counts = data.label_counts
    weights = inverse_propensities(counts, len(train), constants.a, constants.b)
    hits = find_hits(top, test.filtered_targets(), inverse_propensities=weights)
    return {str(m): 100.0 * m.per_query(hits) for m in parse_all(PAIRED)}
