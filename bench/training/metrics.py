"""Time of all default metrics on 100,000 queries and 1.3M labels, against a loop over queries.

    python -m bench training metrics [--queries 100000] [--labels 1300000]

The loop is measured on a part of the queries and scaled up; its column says so.
"""

import argparse
import math

import numpy as np
import scipy.sparse as sp

from bench.common.tables import Table
from bench.common.timing import seconds
from umpteen.data.dataset import Propensity, Split
from umpteen.metrics.hits import find_hits, put_in_order
from umpteen.metrics.propensity import inverse_propensities
from umpteen.scoring import score
from umpteen.types import TopK

LOOP_QUERIES = 2_000


def make_data(n, n_labels, k, rng):
    """Zipf-like positives (about 5 per query) and predictions of which about a third are right."""
    draw = (n_labels ** rng.random((n, 10))).astype(np.int64) % n_labels
    keep = np.arange(10) < rng.integers(1, 10, n)[:, None]
    rows = np.broadcast_to(np.arange(n)[:, None], draw.shape)[keep]
    targets = sp.csr_matrix((np.ones(keep.sum(), np.float32), (rows, draw[keep])), (n, n_labels))
    targets.sum_duplicates()
    targets.data[:] = 1
    predicted = rng.integers(0, n_labels, (n, k))
    right = rng.random((n, min(k, 10))) < 1 / 3
    predicted[:, : right.shape[1]][right] = draw[:, : right.shape[1]][right]
    # The same label twice is no prediction; replace repeats by labels of their own.
    order = np.sort(predicted, axis=1)
    for query in np.flatnonzero((order[:, 1:] == order[:, :-1]).any(axis=1)):
        fresh = np.unique(np.concatenate([predicted[query], rng.integers(0, n_labels, 2 * k + 8)]))
        predicted[query] = rng.permutation(fresh)[:k]
    scores = np.sort(rng.standard_normal((n, k)).astype(np.float32), axis=1)[:, ::-1]
    return TopK(predicted, np.ascontiguousarray(scores)), targets


def loop(topk, targets, weights):
    """The default metrics, query by query, as research code often has them."""
    sums = {}
    for query in range(len(topk)):
        row = targets.indices[targets.indptr[query] : targets.indptr[query + 1]]
        positives = set(row.tolist())
        hits = [label in positives for label in topk.rows[query].tolist()]
        best = sorted((weights[label] for label in row.tolist()), reverse=True)
        gains = [weights[label] * hit for label, hit in zip(topk.rows[query], hits, strict=True)]
        for k in (1, 3, 5):
            bound = sum(1 / math.log2(j + 2) for j in range(min(k, len(row)))) or 1
            for name, values in (("P", hits), ("PS", gains), ("best", best)):
                sums[name, k] = sums.get((name, k), 0) + sum(values[:k])
                dcg = sum(v / math.log2(j + 2) for j, v in enumerate(values[:k]))
                sums[name, "dcg", k] = sums.get((name, "dcg", k), 0) + dcg / bound
        for k in (10, 100):
            sums["R", k] = sums.get(("R", k), 0) + sum(hits[:k]) / max(1, len(row))
        sums["MRR"] = sums.get("MRR", 0) + (1 / (hits.index(True) + 1) if any(hits) else 0)
        for label, hit in zip(topk.rows[query, :5].tolist(), hits, strict=False):
            sums["predicted", label] = sums.get(("predicted", label), 0) + 1
            sums["right", label] = sums.get(("right", label), 0) + hit
    return sums


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=1_300_000)


def main(options: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    n = options.queries
    part = min(n, LOOP_QUERIES)
    print(f"{n} queries, {options.labels} labels; the loop ran on {part} queries and is scaled up")
    table = Table(["k", "order s", "hits s", "score, all s", "loop, scaled s", "ratio"], 3)
    for k in (5, 100):
        topk, targets = make_data(n, options.labels, k, rng)
        split = Split([""] * n, targets)
        counts = np.asarray(targets.getnnz(axis=0), np.int64)
        weights = inverse_propensities(counts, n, 0.55, 1.5)
        some, truth = TopK(topk.rows[:part], topk.scores[:part]), targets[:part]
        rest = {"label_counts": counts, "n_train": n, "propensity": Propensity()}
        order = best(put_in_order, topk)
        hits = best(find_hits, topk, targets)
        whole = best(score, topk, split, **rest)
        plain = best(loop, some, truth, weights) * n / part
        table.add(k, order, hits, whole, plain, f"{plain / whole:.0f}")


def best(function, *arguments, **rest):
    """The least seconds of three calls, as the machine may be busy with other things."""
    return min(seconds(lambda: function(*arguments, **rest)))
