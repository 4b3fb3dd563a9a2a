"""What each part of an ensemble brings: on validation, cross-fitted, and then once on test.

    python bench/ensemble.py DATA --text title [--run RUN] [--set key=value ...] [--out rows.json]

Trains the frugal default on the CPU, or takes a run that was trained on DATA. Selection is by
validation alone; the test split is read once, at the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
MORE = ("nDCG@5", "R@10", "R@100", "C@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--text", choices=["title", "all"], default="title")
    parser.add_argument("--run", help="a run trained on the data before")
    parser.add_argument("--set", dest="settings", nargs="*", default=[])
    parser.add_argument(
        "--queries", type=int, help="test queries for all rows but the default's; all if left out"
    )
    parser.add_argument("--out", help="write all numbers here")
    args = parser.parse_args()
    import umpteen

    data = umpteen.load_dataset(args.data)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(args.run) if args.run else Path(scratch) / "run"
        seconds = {}
        if not args.run:
            started = time.monotonic()
            settings = [f"data.text={args.text}", "ensemble.enabled=off", *args.settings]
            umpteen.train(data, out=run, overrides=settings, device="cpu")
            seconds["train"] = time.monotonic() - started
        started = time.monotonic()
        recipe = fit(run, data)
        seconds["fit"] = time.monotonic() - started
        rows = measure(run, data, recipe, args.queries)
        size = sum(f.stat().st_size for f in (run / "answers").rglob("*") if f.is_file())
    facts = {
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "answers_mib": round(size / 2**20, 1),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    show(rows, facts)
    if args.out:
        Path(args.out).write_text(json.dumps({"rows": rows, **facts}, indent=2) + "\n")


def fit(run: Path, data: Any) -> Any:
    from umpteen.runs import RunFolder
    from umpteen.settings import from_mapping
    from umpteen.training.ensemble import fit_ensemble

    folder = RunFolder(run)
    settings = from_mapping(folder.read_settings(), source=str(folder.config))
    say = lambda text: print(text, file=sys.stderr)  # noqa: E731
    return fit_ensemble(folder, data, settings, device="cpu", say=say, again=True)


def measure(run: Path, data: Any, recipe: Any, queries: int | None) -> list[dict[str, Any]]:
    """A row for each head, and for the ensemble with each combination of parts."""
    import dataclasses

    import numpy as np

    import umpteen

    some = data
    if queries is not None:
        test = data["test"].select(np.arange(min(queries, len(data["test"]))))
        some = dataclasses.replace(data, splits={**data.splits, "test": test})
    model = umpteen.Predictor.load(run, device="cpu")
    rows = []
    for head in model.vector_heads:
        rows.append({"answer": head, **_test(model, data, head=head)})
    whole_test = _test(model, data, head="ensemble")
    rows.append({"answer": "ensemble", "shares": recipe.ways[0].shares, **whole_test})
    whole = max((way.parts for way in recipe.ways), key=len)
    for way in recipe.ways:
        left_out = tuple(part for part in whole if part not in way.parts)
        default = way is recipe.ways[0]
        row = {
            "answer": "ensemble: " + " ".join(way.parts) + (" (default)" if default else ""),
            "tilt": way.tilt,
            "validation": {name: round(way.validation[name], 2) for name in METRICS},
            "shares": {part: round(value, 1) for part, value in way.shares.items()},
            **_test(model, some, head="ensemble", without=() if default else left_out),
        }
        rows.append(row)
    return rows


def _test(model: Any, data: Any, **options: Any) -> dict[str, Any]:
    import umpteen

    started = time.monotonic()
    result = umpteen.evaluate(model, data, metrics=(*METRICS, *MORE), **options)
    seconds = time.monotonic() - started
    report = next(iter(result.heads.values()))
    return {
        "test": {name: round(value, 2) for name, value in report.values.items()},
        "sets": result.sets,
        "ms_per_query": round(1000 * seconds / report.n, 2),
    }


def show(rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    print("| answer | split | " + " | ".join((*METRICS, *MORE)) + " | ms per query |")
    print("|---" * (len(METRICS) + len(MORE) + 3) + "|")
    for row in rows:
        for split in ("validation", "test"):
            if split in row:
                values = [
                    f"{row[split][m]:.2f}" if m in row[split] else "" for m in (*METRICS, *MORE)
                ]
                cost = str(row["ms_per_query"]) if split == "test" else ""
                print(f"| {row['answer']} | {split} | " + " | ".join(values) + f" | {cost} |")
    for row in rows:
        if row.get("sets"):
            print(row["answer"], json.dumps(row["sets"]["auto"]), end=" ")
            print(f"ECE {row['sets']['expected_calibration_error']:.2f}, shares {row['shares']}")
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
