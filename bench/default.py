"""The default that chooses, on any data set: what it chose and why, then test metrics once.

    python bench/default.py DATA [--text all|title] [--minutes M] [--encoder NAME]
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

from training_table import COLUMNS, best_validation, print_machine, print_table

MORE = (*COLUMNS[:6], "nDCG@5", "RP@5", *COLUMNS[6:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--text", choices=["title", "all"], default="all")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--encoder")
    parser.add_argument("--set", dest="settings", nargs="*", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--run", type=Path, help="keep the run here")
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
    run = args.run or folder / "run"
    start, worked = time.perf_counter(), time.process_time()
    try:
        model = umpteen.train(
            data,
            out=run,
            overrides=changes,
            device=args.device,
            minutes=args.minutes,
            cache=folder / "tokens",
            reporters=[Terminal()],
        )
        seconds = time.perf_counter() - start
        worked = time.process_time() - worked
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if torch.cuda.is_available():
            peak = torch.cuda.max_memory_allocated() / 2**30
        history = json.loads((run / "metrics.json").read_text())["validation"]
        chosen = json.loads((run / "config.json").read_text())["chosen"]
        start = time.perf_counter()
        result = umpteen.evaluate(model, data, split="test", metrics=MORE)
        evaluation = time.perf_counter() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [
        {
            "variant": f"default, {args.text}",
            "head": head,
            "validation": best_validation(history, head),
            **report.values,
            "train_s": seconds,
            "train_cpu_s": worked,
            "test_s": evaluation,
            "peak_gib": peak,
            "sets": result.sets if head == "ensemble" else None,
        }
        for head, report in result.heads.items()
    ]
    print_machine(args.device)
    for line in chosen:
        print(line)
    print(f"{worked:.0f} s of CPU in {seconds:.0f} s")
    print_table(rows, MORE)
    if result.sets:
        print(f"sets of the ensemble head: {json.dumps(result.sets)}")
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
