"""What the training benchmarks share: train some variants on one data set, print one table.

A variant is a name, a preset and settings laid over it. Selection happens on validation inside
``umpteen.train``; the test split is read once, after it.
"""

from __future__ import annotations

import json
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100", "C@5")


@dataclass(frozen=True)
class Variant:
    name: str
    preset: str
    settings: list[str] = field(default_factory=list)


def run_variant(variant: Variant, data, *, device: str, show: bool = True) -> list[dict]:
    """Train one variant and return one row per head."""
    import torch

    import umpteen
    from umpteen.training.reporters import Terminal

    folder = Path(tempfile.mkdtemp(prefix="umpteen-bench-"))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    try:
        model = umpteen.train(
            data,
            out=folder / "run",
            preset=variant.preset,
            overrides=variant.settings,
            device=device,
            cache=folder / "tokens",
            reporters=[Terminal()] if show else [],
        )
        seconds = time.perf_counter() - start
        history = json.loads((folder / "run" / "metrics.json").read_text())["validation"]
        if next(model.model.parameters()).is_cuda:
            peak = torch.cuda.max_memory_allocated() / 2**30
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        start = time.perf_counter()
        result = umpteen.evaluate(model, data, split="test", metrics=COLUMNS)
        evaluation = time.perf_counter() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [
        {
            "variant": variant.name,
            "head": head,
            "validation": best_validation(history, head),
            **report.values,
            "train_s": seconds,
            "test_s": evaluation,
            "peak_gib": peak,
        }
        for head, report in result.heads.items()
    ]


def best_validation(history: list[dict], head: str) -> float:
    """The best nDCG@5 over epochs; none for the ensemble head, which comes after training."""
    found = [entry["heads"][head]["nDCG@5"] for entry in history if head in entry["heads"]]
    return max(found, default=float("nan"))


def print_table(rows: list[dict], columns: Sequence[str] = COLUMNS) -> None:
    """A Markdown table on stdout; whatever further columns rows have is left to their JSON."""
    print_rows(rows, ["variant", "head", "validation", *columns, "train_s", "peak_gib"])


def print_rows(rows: list[dict], names: Sequence[str]) -> None:
    """These columns of the rows as a Markdown table."""
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        cells = [f"{row[n]:.2f}" if isinstance(row[n], float) else str(row[n]) for n in names]
        print("| " + " | ".join(cells) + " |")


def print_machine(device: str) -> None:
    """One line on where this ran."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "none"
    print(
        f"python {platform.python_version()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} CPU threads, GPU {gpu}"
    )


def run_table(variants: list[Variant], data, *, device: str, out: str | None) -> None:
    """Run all variants, print the table last, keep the rows as JSON."""
    rows = []
    for variant in variants:
        print(f"{variant.name} ...", file=sys.stderr)
        rows += run_variant(variant, data, device=device)
    print_machine(device)
    print_table(rows)
    if out:
        Path(out).write_text(json.dumps(rows, indent=2))
