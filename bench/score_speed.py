"""Time of all default metrics on 100,000 queries and 1.3M labels, against a loop over queries.

    python bench/score_speed.py [--queries 100000] [--labels 1300000]

The loop is measured on a part of the queries and scaled up; its column says so.
"""

import argparse
import math
import time

import numpy as np
import scipy.sparse as sp

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


def seconds(function):
    """The best of three, as this machine may be busy with other things."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=1_300_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    n = options.queries
    part = min(n, LOOP_QUERIES)
    print(f"{n} queries, {options.labels} labels; the loop ran on {part} queries and is scaled up")
    print(f"{'k':>4} {'order':>8} {'hits':>8} {'score, all':>11} {'loop, scaled':>13} {'times':>6}")
    for k in (5, 100):
        topk, targets = make_data(n, options.labels, k, rng)
        split = Split([""] * n, targets)
        counts = np.asarray(targets.getnnz(axis=0), np.int64)
        weights = inverse_propensities(counts, n, 0.55, 1.5)
        order = seconds(lambda topk=topk: put_in_order(topk))
        hits = seconds(lambda topk=topk, targets=targets: find_hits(topk, targets))
        whole = seconds(
            lambda topk=topk, split=split, counts=counts: score(
                topk, split, label_counts=counts, n_train=n, propensity=Propensity()
            )
        )
        some = TopK(topk.rows[:part], topk.scores[:part])
        plain = seconds(lambda some=some, y=targets[:part], w=weights: loop(some, y, w)) * n / part
        print(
            f"{k:4} {order:7.3f}s {hits:7.3f}s {whole:10.3f}s {plain:12.1f}s {plain / whole:6.0f}"
        )


if __name__ == "__main__":
    main()
