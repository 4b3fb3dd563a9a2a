"""What the ranker over character n-grams adds to the ensemble, and what it costs.

    python -m bench ensemble characters DATA [--text title] [--sizes 6000] [--judges 2000]
        [--seeds 17 18 19] [--set train.epochs=8] [--out rows.jsonl]

For each size and seed a model is trained on so many texts of the train split; others of it are the
judges. Validation and test splits are not read. The ensemble of the same model is fitted without
and with the ranker, so that texts are paired. Differences have twice their standard error over the
texts of all seeds. Time is CPU milliseconds of one thread, for a batch of 512 texts and for one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import options
from bench.common.tables import print_rows
from bench.common.timing import Stopwatch
from bench.common.training_runs import scratch_folder
from bench.training.small_data import subset

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")
BATCH, SINGLES = 512, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser)
    options.add_settings(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=[6000])
    parser.add_argument("--judges", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19])
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    import torch

    import umpteen

    torch.set_num_threads(1)
    data, lines = umpteen.load_dataset(args.data), list[dict[str, Any]]()
    for size in args.sizes:
        for seed in args.seeds:
            small = subset(data, size, args.judges, seed)
            changes = [f"seed={seed}", f"data.text={args.text}", "train.threads=1", *args.settings]
            about = {"data": Path(args.data).name, "size": size, "seed": seed}
            for line in measured(small, changes):
                lines.append(about | line)
                if args.out is not None:
                    with args.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    if args.out is not None:
        lines = [json.loads(line) for line in args.out.read_text("utf-8").splitlines()]
    print_rows(table(lines))


def measured(data: Any, changes: list[str]) -> list[dict[str, Any]]:
    """Fit the ensemble of one model without and with the ranker."""
    import umpteen
    from umpteen.config.loading import load_config
    from umpteen.predictor import Predictor
    from umpteen.ranking.retrievers import character_ranker
    from umpteen.run_folder import RunFolder
    from umpteen.training.fit_ensemble import fit_ensemble_of_run

    usual, found = character_ranker.MIN_TEXTS, list[dict[str, Any]]()
    with scratch_folder() as place:
        model = umpteen.train(
            data, out=place / "run", device="cpu", cache=place / "tokens",
            overrides=[*changes, "ensemble.enabled=off"],
        )  # fmt: skip
        folder = RunFolder(place / "run")
        settings = load_config(str(folder.config))
        for way, least in (("without", 1 << 60), ("with", 1)):
            character_ranker.MIN_TEXTS = least
            try:
                with Stopwatch() as fit:
                    fit_ensemble_of_run(
                        folder, data, settings, device="cpu", log=lambda line: None, again=True,
                        cache=place / "tokens",
                    )  # fmt: skip
            finally:
                character_ranker.MIN_TEXTS = usual
            model = Predictor.load(folder.path, device="cpu")
            found.append({"way": way, "fit s": fit.cpu, **judged(model, data)})
    return found


def judged(model: Any, data: Any) -> dict[str, Any]:
    """Return metrics of the ensemble, the values of each text, and the time of a text."""
    import umpteen

    report = umpteen.evaluate(model, data, split="test", metrics=METRICS, per_query=True)
    own = report.heads["ensemble"]
    texts = list(data["test"].texts(model.text_config.text))[:BATCH]
    model.predict(texts[:1], k=5)
    with Stopwatch() as batch:
        model.predict(texts, k=5)
    with Stopwatch() as single:
        for text in texts[:SINGLES]:
            model.predict(text, k=5)
    return {
        **{metric: own.values[metric] for metric in METRICS},
        "calibration": report.sets["expected_calibration_error"] if report.sets else None,
        "batch ms": 1000 * batch.cpu / len(texts),
        "one ms": 1000 * single.cpu / len(texts[:SINGLES]),
        "texts": {metric: np.round(own.per_query[metric], 4).tolist() for metric in METRICS},
    }


def table(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each way of a data set and size: means over seeds, and differences."""
    rows = []
    for data, size in dict.fromkeys((line["data"], line["size"]) for line in lines):
        own = [line for line in lines if (line["data"], line["size"]) == (data, size)]
        both = {way: [one for one in own if one["way"] == way] for way in ("without", "with")}
        for way, some in both.items():
            row = {"data": data, "size": size, "way": way, "seeds": len(some)}
            keys = (*METRICS, "calibration", "fit s", "batch ms", "one ms")
            rows.append(row | {key: float(np.mean([one[key] for one in some])) for key in keys})
        row = {"data": data, "size": size, "way": "difference", "seeds": len(both["with"])}
        for metric in METRICS:
            pairs = zip(both["with"], both["without"], strict=True)
            gains = np.concatenate(
                [np.subtract(a["texts"][metric], b["texts"][metric]) for a, b in pairs]
            )
            error = 2 * gains.std() / len(gains) ** 0.5
            row[metric] = f"{gains.mean():+.2f} ± {error:.2f}"
        rows.append(row)
    return rows
