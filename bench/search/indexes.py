"""Time, recall and size of the label indexes, and the exact one against a plain product.

    python -m bench search indexes [--labels 131072] [--dim 256] [--queries 512] [-k 10]
        [--device cpu] [--factory HNSW32 IVF1024,Flat] [--out rows.json]

Times are the best of four; the device is waited for.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import torch

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from bench.common.timing import Stopwatch, seconds
from bench.search.vectors import clustered_vectors, plain_search
from umpteen.extras import installed
from umpteen.index.exact import ExactIndex
from umpteen.index.faiss_index import FaissIndex
from umpteen.index.recall import recall

COLUMNS = ("index", "queries/s", "ms", "recall", "build s", "MiB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--factory", nargs="*", default=["", "IVF1024,Flat", "HNSW32"])
    options.add_out(parser)


def main(given: argparse.Namespace) -> None:
    about = {"labels": given.labels, "dim": given.dim, "queries": given.queries, "k": given.k,
             **facts(given.device)}  # fmt: skip
    print_facts(about)
    queries, labels = clustered_vectors(given.queries, given.labels, given.dim, given.device)
    rows = [*exact_rows(given, queries, labels)]
    if installed("faiss") and given.device == "cpu":
        rows += faiss_rows(given, queries, labels)
    print_rows(rows, COLUMNS, 3)
    save(given.out, rows, **about)


def timed_row(given, name, search, **more):
    """The best of four calls."""
    took = min(seconds(search, repeats=4, device=given.device))
    rate = f"{given.queries / took:,.0f}"
    return {"index": name, "queries/s": rate, "ms": 1000 * took, **more}


def exact_rows(given, queries, labels):
    plain = partial(plain_search, queries, labels, given.k)
    yield timed_row(given, "plain product and topk", plain)
    exact = ExactIndex.build(labels)
    for dtype in ("float32", "bfloat16"):
        index = ExactIndex.build(labels, dtype=dtype)
        found = recall(index, exact, queries, given.k)
        search = partial(index.search, queries, given.k)
        yield timed_row(given, f"exact {dtype}", search, recall=found)
    # The worst case: nine different scores, so every query is searched a second time, by keys.
    few = torch.arange(given.dim, device=given.device) < 8
    tied = ExactIndex.build(labels.sign() * few)
    search = partial(tied.search, queries.sign() * few, given.k)
    yield timed_row(given, "exact float32, ties everywhere", search)


def faiss_rows(given, queries, labels):
    exact = ExactIndex.build(labels)
    for factory in given.factory:
        with Stopwatch() as building:
            index = FaissIndex.build(labels, factory=factory or None)
        with tempfile.TemporaryDirectory() as folder:
            index.save(Path(folder) / "index")
            size = sum(path.stat().st_size for path in Path(folder).rglob("*.faiss")) / 2**20
        more = {"recall": recall(index, exact, queries, given.k), "build s": building.wall}
        name = f"faiss {index.factory} effort {index.effort}"
        search = partial(index.search, queries, given.k)
        yield timed_row(given, name, search, **more, MiB=f"{size:.0f}")
