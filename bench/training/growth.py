"""How the time of every stage grows with the data: CPU seconds at several sizes, fitted exponents.

    python -m bench training growth [--queries 10000 30000 100000] [--labels-per-query 0.6667]
        [--minutes M] [--set key=value ...] [--out rows.json]

Makes synthetic data of each size (22 labels a text; two labels for three texts), trains for 100
steps after a refresh, validates, fits the ensemble, builds a label index and predicts. Times are
CPU seconds of the process, which other processes on the machine hardly change; run it with
OMP_NUM_THREADS=1. An exponent e means that the time grows as N^e from the smallest size to the
largest. Without --minutes the ensemble is fitted on everything its settings allow.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from bench.common import options
from bench.common.results import facts, print_facts, save

STEPS = 100
PREDICTED = 500
STAGES = {
    "read": ("read",),
    "tokenize": ("tokenize",),
    "refresh: encode": ("training texts", "label texts"),
    "refresh: cluster": ("clusters",),
    "refresh: cluster labels": ("label clusters",),
    "refresh: mine": ("mining",),
    "validation": ("validation",),
    "ensemble: lexical": ("lexical",),
    "ensemble: examples": ("examples", "example index"),
    "ensemble: candidates": ("candidates",),
    "ensemble: variants": ("variants",),
}
"""Rows of the table, and the kinds of stages in them."""


def measure(queries: int, labels: int, args: argparse.Namespace) -> dict[str, float]:
    """CPU seconds of every stage at one size."""
    from umpteen.data.formats import load_dataset
    from umpteen.data.sources.synthetic import build
    from umpteen.index.faiss_index import FaissIndex
    from umpteen.training.run import train
    from umpteen.training.stage_log import StageLog

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "data").mkdir()
        build(queries=queries, labels=labels, test_share=0.01).write(folder / "data")
        log = StageLog(lambda text: print(f"  {text}", flush=True), clock=time.process_time)
        changes = ["train.epochs=1", f"train.max_steps={STEPS}", *args.settings]
        model = train(
            lambda: load_dataset(folder / "data"),
            out=folder / "run",
            overrides=changes,
            device="cpu",
            cache=folder / "tokens",
            minutes=args.minutes,
            log=log,
        )
        row: dict[str, float] = {"queries": queries, "labels": labels}
        for name, kinds in STAGES.items():
            row[name] = sum(log.seconds.get(kind, 0.0) for kind in kinds)
        lines = (folder / "run" / "steps.jsonl").read_text("utf-8").splitlines()
        first, last = (json.loads(line)["seconds"] for line in (lines[len(lines) // 2], lines[-1]))
        row["step (wall ms)"] = 1000 * (last - first) / (len(lines) - 1 - len(lines) // 2)
        started = time.process_time()
        FaissIndex.build(model.label_vectors.numpy())
        row["index"] = time.process_time() - started
        texts = load_dataset(folder / "data")["test"].texts()[:PREDICTED]
        model.predict(texts[:32], k=10)
        started = time.process_time()
        model.predict(texts, k=10)
        row[f"predict {PREDICTED}"] = time.process_time() - started
        row["peak MiB so far"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return row


def exponent(rows: list[dict[str, float]], name: str) -> float:
    """The slope of log time over log queries, by least squares."""
    import numpy as np

    points = [(row["queries"], row[name]) for row in rows if row[name] > 0]
    if len(points) < 2:
        return float("nan")
    return float(np.polyfit(*np.log(np.array(points)).T, 1)[0])


def print_table(rows: list[dict[str, float]]) -> None:
    """A row for each stage, a column for each size."""
    sizes = [f"{row['queries']:,} x {row['labels']:,}" for row in rows]
    print("\n| stage | " + " | ".join(sizes) + " | exponent |")
    print("|---|" + "---|" * (len(rows) + 1))
    for name in rows[0]:
        if name in ("queries", "labels"):
            continue
        values = " | ".join(f"{row[name]:.2f}" for row in rows)
        print(f"| {name} | {values} | {exponent(rows, name):.2f} |")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--labels-per-query", type=float, default=2 / 3)
    parser.add_argument("--minutes", type=float)
    options.add_settings(parser)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    about = facts("cpu")
    print_facts(about)
    rows = []
    for queries in args.queries:
        rows.append(measure(queries, round(queries * args.labels_per_query), args))
        print(rows[-1], flush=True)
        save(args.out, rows, **about)
    print_table(rows)
