"""The default that chooses its settings, on any data set: what it chose, then test metrics.

    python -m bench training default DATA [--text all|title] [--minutes M] [--encoder NAME]
        [--set key=value ...] [--run RUN] [--out rows.json]

No preset is named. Selection happens on validation; the test split is read once, at the end.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.training_runs import COLUMNS, Variant, print_table, run_variant

METRICS = (*COLUMNS[:6], "nDCG@5", "RP@5", *COLUMNS[6:])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser, "all")
    parser.add_argument("--minutes", type=float, help="the time that training may take")
    parser.add_argument("--encoder", help="a name or a Hugging Face folder")
    options.add_settings(parser)
    options.add_device(parser)
    parser.add_argument("--run", type=Path, help="keep the run here")
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    from umpteen import load_dataset

    settings = [f"data.text={args.text}", *args.settings]
    if args.encoder:
        settings.append(f"encoder.name={args.encoder}")
    rows = run_variant(
        Variant(f"default, {args.text}", None, settings),
        load_dataset(args.data),
        device=args.device,
        run=args.run,
        minutes=args.minutes,
        metrics=METRICS,
    )
    about = facts(args.device)
    print_facts(about)
    print(*rows[0]["chosen"], sep="\n")
    print(f"{rows[0]['train_cpu_s']:.0f} s of CPU in {rows[0]['train_s']:.0f} s")
    print_table(rows, METRICS)
    for row in rows:
        if row["sets"]:
            print(f"sets of the ensemble head: {json.dumps(row['sets'])}")
    save(args.out, rows, **about)
