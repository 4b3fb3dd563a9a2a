"""The table of ``held-out``: means over seeds, and differences from one way, text by text."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.common.tables import Table

MEANS = ("P@1", "P@5", "PSP@1", "PSP@5", "ECE", "micro-F1")
PAIRED = ("P@1", "P@5", "PSP@1")


def print_table(lines: list[dict[str, Any]], against: str) -> None:
    """Print a row for each data set, size and way.

    Args:
        lines: As ``held-out`` writes them.
        against: The way that others of the same data set and size are compared with, over the
            seeds that both have.
    """
    table = Table(
        ["data", "texts", "way", "seeds", "CPU s", *MEANS, *(f"paired {name}" for name in PAIRED)]
    )
    for group in dict.fromkeys((line["data"], line["size"]) for line in lines):
        own = [line for line in lines if (line["data"], line["size"]) == group]
        ways: dict[str, dict[int, dict[str, Any]]] = {}
        for line in own:
            ways.setdefault(line["way"], {})[line["seed"]] = line
        first = ways.get(against, {})
        for way, found in ways.items():
            mean = (float(np.mean([line[n] for line in found.values()])) for n in ("cpu", *MEANS))
            seeds = [seed for seed in found if seed in first and way != against]
            gaps = (
                paired([first[seed] for seed in seeds], [found[seed] for seed in seeds], name)
                for name in PAIRED
            )
            table.add(*group, way, len(found), *mean, *gaps)


def paired(first: list[dict[str, Any]], other: list[dict[str, Any]], metric: str) -> str:
    """Return the mean difference of a text, and twice its standard error over texts and seeds."""
    if not first:
        return "-"
    gaps = np.concatenate(
        [
            np.subtract(b["texts"][metric], a["texts"][metric])
            for a, b in zip(first, other, strict=True)
        ]
    )
    return f"{gaps.mean():+.2f} ± {2 * gaps.std() / np.sqrt(len(gaps)):.2f}"
