"""Train some variants on one data set and print one table.

A variant is a name, a preset and settings laid over it. Selection happens on validation inside
``umpteen.train``; the test split is read once, after it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from bench.common.timing import Stopwatch, host_peak_gib, peak_gib, reset_peak

COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100", "C@5")


@dataclass(frozen=True)
class Variant:
    """One row of such a table."""

    name: str
    preset: str | None
    settings: list[str] = field(default_factory=list)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed in the end, also after an error."""
    folder = Path(tempfile.mkdtemp(prefix="umpteen-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_variant(
    variant: Variant,
    data: Any,
    *,
    device: str,
    show: bool = True,
    run: Path | None = None,
    minutes: float | None = None,
    metrics: Sequence[str] = COLUMNS,
) -> list[dict[str, Any]]:
    """Train one variant and return one row per head.

    Args:
        variant: What to train.
        data: The data set.
        device: Where to train.
        show: Print the progress.
        run: Keep the run here.
        minutes: The time that training may take.
        metrics: The test metrics.
    """
    import umpteen
    from umpteen.training.reporters import Terminal

    with scratch_folder() as folder:
        run = run or folder / "run"
        reset_peak("cuda" if _trains_on_gpu(device) else "cpu")
        with Stopwatch() as training:
            model = umpteen.train(
                data,
                out=run,
                preset=variant.preset,
                overrides=variant.settings,
                device=device,
                minutes=minutes,
                cache=folder / "tokens",
                reporters=[Terminal()] if show else [],
            )
        history = json.loads((run / "metrics.json").read_text())["validation"]
        chosen = json.loads((run / "config.json").read_text())["chosen"]
        on = str(next(model.model.parameters()).device)
        peak = peak_gib(on) if on.startswith("cuda") else host_peak_gib()
        with Stopwatch() as test:
            result = umpteen.evaluate(model, data, split="test", metrics=metrics)
    return [
        {
            "variant": variant.name,
            "head": head,
            "validation": best_validation(history, head),
            **report.values,
            "train_s": training.wall,
            "train_cpu_s": training.cpu,
            "test_s": test.wall,
            "peak_gib": peak,
            "sets": result.sets if head == "ensemble" else None,
            "chosen": chosen,
        }
        for head, report in result.heads.items()
    ]


def _trains_on_gpu(device: str) -> bool:
    import torch

    return torch.cuda.is_available() and device != "cpu"


def best_validation(history: list[dict], head: str) -> float:
    """The best nDCG@5 over epochs; none for the ensemble head, which comes after training."""
    found = [entry["heads"][head]["nDCG@5"] for entry in history if head in entry["heads"]]
    return max(found, default=float("nan"))


def print_table(rows: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """The usual columns; whatever else rows have is left to their JSON."""
    print_rows(rows, ["variant", "head", "validation", *columns, "train_s", "peak_gib"])


def run_table(variants: list[Variant], data: Any, *, device: str, out: Path | None) -> None:
    """Run all variants, print the table last, keep the rows as JSON after each."""
    rows: list[dict[str, Any]] = []
    about = facts(device)
    for variant in variants:
        print(f"{variant.name} ...", file=sys.stderr)
        rows += run_variant(variant, data, device=device)
        save(out, rows, **about)
    print_facts(about)
    print_table(rows)
