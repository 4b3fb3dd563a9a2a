"""What the benchmarks of objectives over all labels share: sizes, positives and their table."""

from __future__ import annotations

import argparse

import numpy as np

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows

LABELS_131K, LABELS_1M = 131_073, 1_305_265
FLOP_PER_SECOND = 790e12
"""The measured rate of large bfloat16 products on an H200."""
COLUMNS = {"work": "work", "code": "code", "ms": "ms", "wall_ms": "wall ms",
           "peak_gib": "peak GiB", "share": "share of the floor"}  # fmt: skip


def positives_of(n_queries: int, n_labels: int, per_query: int, seed: int):
    from umpteen.types import Positives

    rng = np.random.default_rng(seed)
    cols = rng.integers(0, n_labels, (n_queries, per_query))
    rows = np.repeat(np.arange(n_queries), per_query)
    pairs = np.unique(np.column_stack([rows, cols.ravel()]), axis=0)
    return Positives(pairs[:, 0], pairs[:, 1], np.ones(len(pairs), np.float32))


def add_scale(parser: argparse.ArgumentParser) -> None:
    """The size, and where the rows go."""
    parser.add_argument("--scale", type=float, default=1.0, help="of labels and batch alike")
    options.add_out(parser)


def show(rows: list[dict], device, out) -> None:
    """Print the table and keep it; floors are those of a GPU."""
    about = facts(device)
    print_facts(about)
    for row in rows:
        if "floor_ms" in row and device.type == "cuda":
            row["share"] = f"{row['floor_ms'] / row['ms']:.0%}"
    print_rows(rows, COLUMNS)
    save(out, rows, **about)
