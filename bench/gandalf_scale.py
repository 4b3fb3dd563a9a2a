"""Time and peak memory of Gandalf's targets on a made-up data set of the largest published shape.

    python bench/gandalf_scale.py [--labels 1305265] [--queries 2248619] [--draws 26]

Label frequencies fall as a power of the rank (Zipf), and half of a query's labels have near ranks,
so that some come together often; no text, no model. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

import numpy as np
import scipy.sparse as sp

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


def peak_gib() -> float:
    """Most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=1_305_265)
    parser.add_argument("--queries", type=int, default=2_248_619)
    parser.add_argument("--draws", type=float, default=26.0)
    parser.add_argument("--exponent", type=float, default=0.8)
    parser.add_argument("--method", default="gandalf", choices=sorted(AUGMENTATIONS))
    parser.add_argument("--delta", type=float)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.perf_counter()
    targets = zipf_matrix(
        args.queries, args.labels, args.draws, exponent=args.exponent, seed=args.seed
    )
    made, before = time.perf_counter() - start, peak_gib()
    shown = time.perf_counter()

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if time.perf_counter() - shown > 5:
            shown = time.perf_counter()
            print(f"{done:,} of {total:,} label rows", file=sys.stderr)

    start = time.perf_counter()
    found, dropped = resolve(AUGMENTATIONS, args.method, kind="augmentation")(
        targets, np.arange(args.labels), GraphOptions(delta=args.delta, seed=args.seed), tell
    )
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
                "seconds": round(time.perf_counter() - start, 1),
                "peak_gib": round(peak_gib(), 2),
                "generating_seconds": round(made, 1),
                "generating_peak_gib": round(before, 2),
                "dropped": vars(dropped),
            }
        )
    )


if __name__ == "__main__":
    main()
