"""Time and peak memory of Gandalf's targets on a made-up data set of the largest published shape.

    python -m bench training gandalf [--labels 1305265] [--queries 2248619] [--draws 26]

Label frequencies fall as a power of the rank (Zipf), and half of a query's labels have near ranks,
so that some come together often; no text, no model. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
import scipy.sparse as sp

from bench.common import options
from bench.common.timing import Stopwatch, host_peak_gib
from umpteen.data.augment import AUGMENTATIONS
from umpteen.data.augment.graph import GraphOptions
from umpteen.registry import resolve


def zipf_matrix(
    n_queries: int, n_labels: int, draws: float, *, exponent: float, seed: int
) -> sp.csr_matrix:
    """A relevance matrix (N, L): half of a query's labels near one place, half from anywhere.

    Labels are drawn by frequency 1 / rank^exponent; ranks are shuffled over rows. The number of
    draws of a query is geometric; a label that is drawn twice counts once, so positives are fewer
    (about 22 a query with 26 draws and the default shape).
    """
    rng = np.random.default_rng(seed)
    wanted = np.minimum(rng.geometric(1 / draws, n_queries), 10 * int(draws))
    cumulative = np.cumsum(1.0 / np.arange(1, n_labels + 1) ** exponent)
    total = int(wanted.sum())
    queries = np.repeat(np.arange(n_queries, dtype=np.int32), wanted)

    def draw(n: int) -> np.ndarray:
        return np.searchsorted(cumulative, rng.random(n) * cumulative[-1]).astype(np.int64)

    near = np.repeat(draw(n_queries), wanted) + rng.integers(-15, 16, total)
    labels = np.where(rng.random(total) < 0.5, np.clip(near, 0, n_labels - 1), draw(total))
    shuffled = rng.permutation(n_labels)[labels].astype(np.int32)
    matrix = sp.csr_matrix(
        (np.ones(total, np.float32), (queries, shuffled)), shape=(n_queries, n_labels)
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=int, default=1_305_265)
    parser.add_argument("--queries", type=int, default=2_248_619)
    parser.add_argument("--draws", type=float, default=26.0)
    parser.add_argument("--exponent", type=float, default=0.8)
    parser.add_argument("--method", default="gandalf", choices=sorted(AUGMENTATIONS))
    parser.add_argument("--delta", type=float)
    options.add_seed(parser)


def main(args: argparse.Namespace) -> None:
    with Stopwatch() as making:
        targets = zipf_matrix(
            args.queries, args.labels, args.draws, exponent=args.exponent, seed=args.seed
        )
    before = host_peak_gib()
    shown = time.perf_counter()

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if time.perf_counter() - shown > 5:
            shown = time.perf_counter()
            print(f"{done:,} of {total:,} label rows", file=sys.stderr)

    method = resolve(AUGMENTATIONS, args.method, kind="augmentation")
    graph = GraphOptions(delta=args.delta, seed=args.seed)
    with Stopwatch() as work:
        found, dropped = method(targets, np.arange(args.labels), graph, tell)
    print(
        json.dumps(
            {
                "labels": args.labels,
                "queries": args.queries,
                "entries": int(targets.nnz),
                "most_frequent": int(targets.getnnz(axis=0).max()),
                "max_positives": int(targets.getnnz(axis=1).max()),
                "method": args.method,
                "target_entries": int(found.nnz),
                "seconds": round(work.wall, 1),
                "peak_gib": round(host_peak_gib(), 2),
                "generating_seconds": round(making.wall, 1),
                "generating_peak_gib": round(before, 2),
                "dropped": vars(dropped),
            }
        )
    )
