"""The default that chooses, on any data set: what it chose and why, then test metrics once.

    python bench/default.py DATA [--text all|title] [--minutes M] [--tune M] [--encoder NAME]
        [--set key=value ...] [--out rows.json]

No preset is named. Selection happens on validation; the test split is read once, at the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

from training_table import COLUMNS, print_machine, print_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--text", choices=["title", "all"], default="all")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--tune", type=float)
    parser.add_argument("--encoder")
    parser.add_argument("--set", dest="settings", nargs="*", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out")
    args = parser.parse_args()
    import torch

    import umpteen
    from umpteen.training.reporters import Terminal

    data = umpteen.load_dataset(args.data)
    changes = [f"data.text={args.text}", *args.settings]
    if args.encoder:
        changes.append(f"encoder.name={args.encoder}")
    folder = Path(tempfile.mkdtemp(prefix="umpteen-default-"))
    start = time.perf_counter()
    try:
        model = umpteen.train(
            data,
            out=folder / "run",
            overrides=changes,
            device=args.device,
            minutes=args.minutes,
            tune=args.tune,
            cache=folder / "tokens",
            reporters=[Terminal()],
        )
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if torch.cuda.is_available():
            peak = torch.cuda.max_memory_allocated() / 2**30
        history = json.loads((folder / "run" / "metrics.json").read_text())["validation"]
        chosen = json.loads((folder / "run" / "config.json").read_text())["chosen"]
        start = time.perf_counter()
        result = umpteen.evaluate(model, data, split="test", metrics=COLUMNS)
        evaluation = time.perf_counter() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [
        {
            "variant": f"default, {args.text}",
            "head": head,
            "validation": max(
                (e["heads"][head]["nDCG@5"] for e in history if head in e["heads"]),
                default=float("nan"),
            ),
            **report.values,
            "train_s": seconds,
            "test_s": evaluation,
            "peak_gib": peak,
        }
        for head, report in result.heads.items()
    ]
    print_machine(args.device)
    for line in chosen:
        print(line)
    print_table(rows)
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
