"""How the time of every stage grows with the data: CPU seconds at several sizes, fitted exponents.

    python -m bench training growth [--queries 10000 30000 100000] [--labels-per-query 0.6667]
        [--minutes M] [--set key=value ...] [--out rows.json]
    python -m bench training growth --show rows.json [more.json ...]

Makes synthetic data of each size (22 labels a text; two labels for three texts), trains for 100
steps after a refresh, validates, fits the ensemble, builds a label index and predicts. Times are
CPU seconds of the process, which other processes on the machine hardly change; run it with
OMP_NUM_THREADS=1. An exponent e means that the time grows as N^e over the sizes for which the law
of a stage holds; beside it is what the law gives at the same sizes. Without --minutes the ensemble
is fitted on everything its settings allow; --set ensemble.enabled=off leaves it out. On a busy
machine give --set ensemble.seconds=100000: its limit counts the time of the wall.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.common import options
from bench.common.results import facts, print_facts, save

STEPS = 100
PREDICTED = 500
EXACT_PAIRS = 1 << 30
VALIDATION_PAIRS = 1 << 28
INDEXED, LISTED = 20_000, 200_000
"""Rows from which an index is approximate, and from which the one of labels has lists."""


@dataclass(frozen=True)
class Stage:
    """A row of the table."""

    kinds: tuple[str, ...]
    """The kinds of stages in it."""
    law: str
    work: Callable[[float, float], float]
    """What the law says for N texts and L labels, up to a factor."""
    holds: Callable[[float, float], bool] = lambda n, labels: True
    """Whether the law holds at this size."""


def many(n: float, labels: float) -> bool:
    """Return whether hard negatives are searched within clusters."""
    return n * labels > EXACT_PAIRS


def held_out(n: float) -> float:
    """Return V, the validation texts."""
    return min(0.03 * n, 2_000)


STAGES = {
    "read": Stage(("read",), "N + L", lambda n, labels: n),
    "tokenize": Stage(("tokenize",), "N + L", lambda n, labels: n),
    "step": Stage(("Training, steps",), "1", lambda n, labels: 1),
    "refresh: encode": Stage(("training texts", "label texts"), "N + L", lambda n, labels: n),
    "refresh: cluster": Stage(("clusters",), "N log N", lambda n, labels: n * math.log(n)),
    "refresh: cluster labels": Stage(
        ("label clusters",), "L sqrt(L)", lambda n, labels: labels**1.5, many
    ),
    "refresh: mine": Stage(("mining",), "N sqrt(L)", lambda n, labels: n * labels**0.5, many),
    "validation": Stage(
        ("validation",),
        "V L, at most 2^28 pairs",
        lambda n, labels: min(VALIDATION_PAIRS, held_out(n) * labels),
    ),
    "ensemble: lexical": Stage(("lexical",), "N, bounded", lambda n, labels: n),
    "ensemble: examples": Stage(("examples",), "N", lambda n, labels: n),
    "ensemble: example index": Stage(
        ("example index",),
        "N sqrt(N), from 20,000 texts on",
        lambda n, labels: n**1.5,
        lambda n, labels: n >= INDEXED,
    ),
    "ensemble: candidates": Stage(("candidates",), "V L", lambda n, labels: held_out(n) * labels),
    "ensemble: variants": Stage(("variants",), "V", lambda n, labels: held_out(n)),
    "index: graph": Stage(
        (),
        f"L log L, {INDEXED:,} to {LISTED:,} labels",
        lambda n, labels: labels * math.log(labels),
        lambda n, labels: INDEXED <= labels < LISTED,
    ),
    "index: lists": Stage(
        (),
        f"L sqrt(L), from {LISTED:,} labels on",
        lambda n, labels: labels**1.5,
        lambda n, labels: labels >= LISTED,
    ),
    "predict 500": Stage((), "L", lambda n, labels: labels),
}


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
        for name, stage in STAGES.items():
            row[name] = sum(log.seconds.get(kind, 0.0) for kind in stage.kinds)
        # Refresh, validation and checkpoints are stages within that of the steps.
        within = [row["validation"], log.seconds.get("Writing a checkpoint", 0.0)]
        within += [seconds for name, seconds in row.items() if name.startswith("refresh")]
        row["step"] = (row["step"] - sum(within)) / STEPS
        if not args.no_index:
            started = time.process_time()
            FaissIndex.build(model.label_vectors.numpy())
            kind = "index: lists" if labels >= LISTED else "index: graph"
            row[kind] = time.process_time() - started
        texts = load_dataset(folder / "data")["test"].texts()[:PREDICTED]
        model.predict(texts[:32], k=10)
        started = time.process_time()
        model.predict(texts, k=10)
        row[f"predict {PREDICTED}"] = time.process_time() - started
        row["peak MiB so far"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return row


def exponent(points: list[tuple[float, float]]) -> float:
    """Return the slope of log time over log queries, by least squares."""
    import numpy as np

    points = [point for point in points if point[1] > 0]
    if len(points) < 2:
        return float("nan")
    return float(np.polyfit(*np.log(np.array(points)).T, 1)[0])


def print_table(rows: list[dict[str, float]]) -> None:
    """Print a row for each stage, with a column for each size, the law, and both exponents."""
    rows = sorted(rows, key=lambda row: row["queries"])
    sizes = [f"{row['queries']:,} x {row['labels']:,}" for row in rows]
    print("\n| stage | " + " | ".join(sizes) + " | law | its exponent | measured |")
    print("|---|" + "---|" * (len(rows) + 3))
    for name, stage in STAGES.items():
        values = " | ".join(f"{row[name]:.3g}" if row.get(name) else "" for row in rows)
        fitting = [
            (row["queries"], row[name], stage.work(row["queries"], row["labels"]))
            for row in rows
            if row.get(name) and stage.holds(row["queries"], row["labels"])
        ]
        law = exponent([(n, work) for n, _, work in fitting])
        found = exponent([(n, seconds) for n, seconds, _ in fitting])
        print(f"| {name} | {values} | {stage.law} | {law:.2f} | {found:.2f} |")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    parser.add_argument("--labels-per-query", type=float, default=2 / 3)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--no-index", action="store_true", help="build no label index")
    parser.add_argument("--show", type=Path, nargs="+", help="print the table of kept rows")
    options.add_settings(parser)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    if args.show:
        print_table([row for file in args.show for row in json.loads(file.read_text())["rows"]])
        return
    about = facts("cpu")
    print_facts(about)
    rows = []
    for queries in args.queries:
        rows.append(measure(queries, round(queries * args.labels_per_query), args))
        print(rows[-1], flush=True)
        save(args.out, rows, **about)
    print_table(rows)
