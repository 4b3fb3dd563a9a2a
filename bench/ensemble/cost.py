"""Measure what the ensemble costs next to the combined head and to a plain search.

    python -m bench ensemble cost RUN DATA [--split test] [--texts 2254] [-k 10] [--threads 1 2]
        [--single 300] [--examples 16000] [--labels 50000] [--device cpu] [--out rows.json]

Batches: encoding, a plain search (one product and one top-k), the combined head and the ensemble,
per text, for each number of threads. Single texts: p50 and p99 on one thread, also with
explanations. Then RUN is copied, --examples corrections and --labels labels are added to the copy,
and the same is measured again. RUN itself is not changed.

``ms`` is wall-clock time, the fastest of --repeats; ``CPU ms`` is the time of all threads, for a
machine that is not idle.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from bench.common.timing import Stopwatch, each, fastest
from umpteen import Predictor, load_dataset

Row = dict[str, Any]
ADDED_AT_ONCE = 1000
COLUMNS = {"work": "work", "threads": "threads", "ms": "ms", "cpu_ms": "CPU ms", "p99_ms": "p99 ms",
           "ratio": "ratio of CPU"}  # fmt: skip


def main(args: argparse.Namespace) -> None:
    data = load_dataset(args.data)
    run = Path(args.run)
    model, load = loaded(run, args.device)
    texts = list(data[args.split].texts(model.text_config.text))[: args.texts]
    rows = [load]
    for threads in args.threads:
        with threads_limited(threads):
            rows += batches(model, texts, args, threads)
    with threads_limited(1):
        rows += single_texts(model, texts, args)
    if args.examples or args.labels:
        with tempfile.TemporaryDirectory(prefix="umpteen-ensemble-") as scratch:
            rows += after_changes(run, Path(scratch) / "run", data, texts, rows, args)
    about = {
        "run": run.name,
        "labels": len(data.labels),
        "texts": len(texts),
        "k": args.k,
        "device": args.device,
        **facts(args.device),
    }
    print_facts(about)
    print_rows(rows, COLUMNS, 3)
    save(args.out, rows, **about)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_data(parser)
    parser.add_argument("--split", default="test")
    parser.add_argument("--texts", type=int, help="texts of a batch; the whole split by default")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--single", type=int, default=300, help="texts predicted one by one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--examples", type=int, default=0, help="corrections to add")
    parser.add_argument("--labels", type=int, default=0, help="labels to add")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_out(parser)


def loaded(run: Path, device: str) -> tuple[Predictor, Row]:
    """Load the run and predict one text, because some parts are loaded on first use."""
    with Stopwatch() as watch:
        model = Predictor.load(run, device=device)
        model.predict(["first text"], 5, head="ensemble")
    return model, {"work": "load, first text", "ms": 1000 * watch.wall, "cpu_ms": 1000 * watch.cpu}


@contextmanager
def threads_limited(n: int) -> Iterator[None]:
    """Limit torch, BLAS and OpenMP to n threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        with threadpool_limits(n):
            yield
    finally:
        torch.set_num_threads(before)


def batches(model: Any, texts: list[str], args: argparse.Namespace, threads: int) -> list[Row]:
    """Time per text of a whole batch."""
    vectors = model.vectors(texts)[:, model.label_vectors.columns["combined"]]
    table = torch.as_tensor(model.label_vectors.numpy("combined")).to(vectors.device)
    works: dict[str, Callable[[], Any]] = {
        "batch: encode": lambda: model.vectors(texts),
        "batch: plain search": lambda: plain_search(vectors, table, args.k),
        "batch: combined": lambda: model.predict(texts, args.k, head="combined"),
        "batch: ensemble": lambda: model.predict(texts, args.k, head="ensemble"),
    }
    rows = []
    for work, function in works.items():
        wall, cpu = fastest(function, args.repeats, args.device)
        rows.append(
            {
                "work": work,
                "threads": threads,
                "ms": 1000 * wall / len(texts),
                "cpu_ms": 1000 * cpu / len(texts),
            }
        )
    rows[-1]["ratio"] = rows[-1]["cpu_ms"] / rows[-2]["cpu_ms"]
    return rows


def plain_search(queries: torch.Tensor, table: torch.Tensor, k: int) -> list[torch.Tensor]:
    """The search that anybody would write: a product and a top-k, block by block."""
    return [(block @ table.T).topk(k).indices.cpu() for block in queries.split(256)]


def single_texts(model: Any, texts: list[str], args: argparse.Namespace) -> list[Row]:
    """Latency of one text on one thread."""
    some = texts[: args.single]
    works: dict[str, Callable[[str], Any]] = {
        "one text: combined": lambda text: model.predict([text], args.k, head="combined"),
        "one text: ensemble": lambda text: model.predict([text], args.k, head="ensemble"),
        "one text: ensemble, explain": lambda text: model.predict(
            [text], args.k, head="ensemble", explain=True
        ),
    }
    rows = []
    for work, function in works.items():
        rows.append({"work": work, "threads": 1, **latency(function, some)})
    for row, other in ((rows[1], rows[0]), (rows[2], rows[1])):
        row["ratio"] = row["cpu_ms"] / other["cpu_ms"]
    return rows


def latency(function: Callable[[str], Any], texts: list[str]) -> Row:
    """Wall-clock percentiles and the median CPU time of one call."""
    watches = []

    def watched(text: str) -> None:
        with Stopwatch() as watch:
            function(text)
        watches.append(watch)

    each(function, texts[:20])
    each(watched, texts)
    p50, p99 = 1000 * np.percentile([watch.wall for watch in watches], [50, 99])
    cpu = 1000 * float(np.median([watch.cpu for watch in watches]))
    return {"ms": float(p50), "p99_ms": float(p99), "cpu_ms": cpu}


def after_changes(
    run: Path, copy: Path, data: Any, texts: list[str], before: list[Row], args: argparse.Namespace
) -> list[Row]:
    """Measure again on a copy of the run with corrections and labels added."""
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    model, _ = loaded(copy, args.device)
    named = f"{args.examples:,} examples and {args.labels:,} labels"
    rows = added(model, data, args)
    model, load = loaded(copy, args.device)
    rows.append(load)
    for threads in args.threads:
        with threads_limited(threads):
            rows += [
                row for row in batches(model, texts, args, threads) if "plain" not in row["work"]
            ]
    with threads_limited(1):
        rows += single_texts(model, texts, args)
    by_work = {(row["work"], row.get("threads")): row for row in before}
    for row in rows:
        if other := by_work.get((row["work"], row.get("threads"))):
            row["ratio"] = row["cpu_ms"] / other["cpu_ms"]
            row["work"] += f", after {named}"
    return rows


def added(model: Any, data: Any, args: argparse.Namespace) -> list[Row]:
    """Add corrections and labels, and return the time of each."""
    train, rng = data["train"], np.random.default_rng(0)
    titles = data.labels.titles
    pairs = rng.integers(len(titles), size=(args.labels, 2))
    labels = {
        f"added-{n}": f"{titles[one]} {titles[two]} {n}" for n, (one, two) in enumerate(pairs)
    }
    sources = rng.integers(len(train), size=args.examples)
    texts = [f"{train.titles[row]} {n}" for n, row in enumerate(sources.tolist())]
    positives = [
        [data.labels.ids[label] for label in train.targets[row].indices.tolist()]
        for row in sources.tolist()
    ]
    names = list(labels)

    def add_labels(part: slice) -> None:
        model.add_labels({name: labels[name] for name in names[part]})

    def add_examples(part: slice) -> None:
        model.add_examples(texts[part], positives[part])

    rows = []
    for what, n, add in (
        ("label", args.labels, add_labels),
        ("example", args.examples, add_examples),
    ):
        if n:
            with Stopwatch() as watch:
                for start in range(0, n, ADDED_AT_ONCE):
                    add(slice(start, start + ADDED_AT_ONCE))
            print(f"added {n:,} {what}s in {watch.wall:.1f} s", file=sys.stderr)
            costs = {"ms": 1000 * watch.wall / n, "cpu_ms": 1000 * watch.cpu / n}
            rows.append({"work": f"add one {what}", **costs})
    return rows
