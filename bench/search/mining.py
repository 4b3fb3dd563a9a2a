"""Recall of hard negatives that are searched within clusters, on a trained run.

    python -m bench search mining RUN DATA [--queries 3000] [--probes 8 32 128] [--out rows.json]

Encodes training texts with the run and searches the nearest labels of its dual head, a text's own
labels and filter pairs left out: exactly, and within clusters as `batches.search=clusters` does.
Microseconds are CPU time for a text; `score lost` is how much lower the mean score of the 30 is.
"""

import argparse
import time

import numpy as np
import torch

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from umpteen.data.formats import load_dataset
from umpteen.index.cluster_search import PROBES, ClusterSearch
from umpteen.index.exact import ExactIndex
from umpteen.predictor import Predictor

KEPT, NEAREST = 30, 6


def recall(found, wanted, k):
    hits = (found[:, :k, None] == wanted[:, None, :k]).any(axis=1)
    return float(hits[wanted[:, :k] >= 0].mean())


def own_pairs(split):
    rows = np.repeat(np.arange(len(split)), np.diff(split.targets.indptr))
    pairs = np.column_stack([rows, split.targets.indices]).astype(np.int64)
    return np.unique(np.concatenate([pairs, split.filters]), axis=0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_data(parser)
    options.add_text(parser)
    parser.add_argument("--queries", type=int, default=3_000)
    parser.add_argument("--probes", type=int, nargs="+", default=[8, PROBES, 128])
    options.add_out(parser)


def main(given: argparse.Namespace) -> None:
    about = {"queries": given.queries, **facts("cpu")}
    print_facts(about)
    train = load_dataset(given.data)["train"]
    chosen = np.random.default_rng(0).permutation(len(train))[: given.queries]
    split = train.select(np.sort(chosen))
    predictor = Predictor.load(given.run, device="cpu")
    labels = torch.from_numpy(np.array(predictor.label_vectors.numpy("dual")))
    queries = predictor.vectors(split.texts(given.text))[:, : labels.shape[1]].contiguous()
    pairs, rows, exact = own_pairs(split), [], None
    for probes in (None, *given.probes):
        with torch.no_grad():
            index = ExactIndex.build(labels) if probes is None else ClusterSearch(
                labels, probes=probes
            )  # fmt: skip
            started = time.process_time()
            found = index.search(queries, KEPT, exclude=pairs)
            seconds = time.process_time() - started
        exact = exact or found
        rows.append({
            "search": "exact" if probes is None else f"clusters, {probes} probes",
            "us": 1e6 * seconds / len(queries),
            f"recall of {NEAREST}": recall(found.rows, exact.rows, NEAREST),
            f"recall of {KEPT}": recall(found.rows, exact.rows, KEPT),
            "score lost": float((exact.scores - found.scores)[found.rows >= 0].mean()),
        })  # fmt: skip
    print_rows(rows, digits=3)
    save(given.out, rows, **about)
