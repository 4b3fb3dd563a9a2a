"""Clustering and mining as a refresh does them, without encoding.

    python -m bench search refresh [--queries 2250000] [--labels 1305265] [--dim 256] [-k 30]
        [--positives 22] [--cluster-size 1098]

Runs on a GPU where there is one; on a CPU ask for less.
"""

import argparse
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch

from bench.common.results import facts, print_facts, save
from bench.common.timing import best_device, is_cuda, timed
from bench.search.vectors import SearchTable, add_sizes, clustered_vectors, share, sizes_of
from umpteen.data.clusters import balanced_clusters
from umpteen.data.samplers import cluster_levels
from umpteen.training.mining import mine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sizes(parser, queries=2_250_000, dim=256, k=30)
    parser.add_argument("--positives", type=int, default=22, help="per query, on average")
    parser.add_argument("--cluster-size", type=int, default=1098)


def main(given: argparse.Namespace) -> None:
    device = best_device()
    about = {"sizes": sizes_of(given), **facts(device)}
    print_facts(about)
    table = SearchTable()
    with torch.no_grad():
        refresh(given, table, device)
    save(given.out, table.rows, **about)


def cluster(vectors, n_levels):
    return balanced_clusters(vectors, n_levels, generator=torch.Generator().manual_seed(0))


def refresh(given, table, device):
    queries, labels = clustered_vectors(given.queries, given.labels, given.dim, device)
    rng = np.random.default_rng(0)
    counts = rng.geometric(1 / given.positives, len(queries))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    # Few labels take most of the pairs: the square of a uniform number, rounded down.
    drawn = (rng.random(indptr[-1], dtype=np.float32) ** 2 * given.labels).astype(np.int32)
    shape = len(queries), given.labels
    targets = sp.csr_matrix((np.ones(len(drawn), np.bool_), drawn, indptr), shape)
    nothing = np.empty((0, 2), np.int64)
    levels = cluster_levels(len(queries), given.cluster_size)
    for vectors in (queries, queries.bfloat16()):
        took = timed(partial(cluster, vectors, levels), repeats=1, device=device)
        table.add(f"{2**levels} clusters of {str(vectors.dtype)[6:]}", took)
    del vectors
    work = 2 * given.queries * given.labels * given.dim
    for first_pass in ["bfloat16", "float8"] if is_cuda(device) else [None]:
        inputs = queries, labels, targets, nothing, given.k
        took = timed(partial(mine, *inputs, first_pass=first_pass), repeats=1, device=device)
        sample = np.sort(rng.choice(len(queries), min(512, len(queries)), replace=False))
        wanted = mine(
            queries[torch.from_numpy(sample).to(device)].cpu(), labels.cpu(), targets[sample],
            nothing, given.k,
        )  # fmt: skip
        recall = share(took.result[sample], wanted, given.labels)
        name = f"mine {given.k}, first pass {first_pass}"
        table.add(name, took, recall=recall, tflops=work / took.ms / 1e9)
