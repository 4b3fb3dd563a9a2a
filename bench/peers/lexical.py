"""The lexical ranker alone against linear trees, trained on the same texts.

    python -m bench peers lexical DATA --text title [--split validation] [--python PEERS/bin/python]

Validation is what training would hold out of train (or the data's own validation split): neither
side learns from it. ``--split test`` is for a last look. PEERS is the environment that
``peers table`` describes; without it our row alone is printed. Seconds are of learning, by the wall
and by the processor; ``--threads`` is what both sides may use.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common import options
from bench.common.tables import Table
from bench.common.timing import Stopwatch
from bench.peers.table import PEERS, call, export, peer_row

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "nDCG@5", "R@10", "R@100")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser)
    parser.add_argument("--split", choices=["validation", "test"], default="validation")
    parser.add_argument("--python", help="the peers' interpreter")
    peers = [name for name in PEERS if name != "xr-transformer"]
    parser.add_argument("--peers", nargs="*", choices=peers, default=["bonsai"])
    parser.add_argument("--seconds", type=float, default=300.0, help="that the ranker may take")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--k", type=int, default=100)
    options.add_device(parser, "cpu")


def main(args: argparse.Namespace) -> None:
    from umpteen import load_dataset
    from umpteen.config.schema import RunConfig
    from umpteen.training.prepare import training_splits

    data = load_dataset(args.data)
    held = training_splits(data, RunConfig())
    splits = {"train": held["train"], "test": held["validation"]}
    if args.split == "test":
        splits = {"train": data["train"], "test": data["test"]}
    both = dataclasses.replace(data, splits=splits)
    table = Table(["scorer", *METRICS, "train s", "CPU s"])
    table.add("lexical ranker", *ours(both, args))
    if args.python:
        with tempfile.TemporaryDirectory(prefix="umpteen-lexical-") as temporary:
            folder = Path(temporary)
            export(both, args.text, folder)
            call(args.python, "features.py", temporary, temporary, "--variant", args.text)
            for name in args.peers:
                row = peer_row(name, both, folder, args)
                table.add(name, *(float(row[metric]) for metric in METRICS), row["train_s"], None)


def ours(data: Any, args: argparse.Namespace) -> list[float]:
    """Metrics and seconds of the lexical ranker as a run would fit it."""
    import torch

    from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
    from umpteen.ranking.lexical.sparse_topk import product, top_k_of_rows
    from umpteen.scoring import score
    from umpteen.types import TopK

    torch.set_num_threads(args.threads)
    train, test = data["train"], data["test"]
    with Stopwatch() as fitting:
        ranker, _ = LexicalRanker.fit(
            list(train.texts(args.text)),
            train.filtered_targets(),
            data.labels.encoder_texts(args.text),
            filters=train.filters,
            seconds=args.seconds,
            device=args.device,
            log=lambda text: print(text, file=sys.stderr),
        )
    queries = ranker.vectorizer.transform(list(test.texts(args.text)))
    rows, scores = top_k_of_rows(product(queries, ranker.all_weights()), 150)
    report = score(
        TopK(rows, scores, data.labels),
        test,
        label_counts=data.label_counts,
        n_train=len(train),
        propensity=data.propensity,
        metrics=METRICS,
    )
    return [*(float(report.values[metric]) for metric in METRICS), fitting.wall, fitting.cpu]
