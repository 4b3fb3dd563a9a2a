"""Compare the lexical scorers' settings and solvers on held-out training texts."""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.lexical.ranker_training import LexicalConfig
from umpteen.ranking.lexical.sparse_topk import look_up, product, prune_postings, top_k_of_rows


def lines(path):
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
    with opened as handle:
        return [json.loads(line) for line in handle]


def read(folder, field="title"):
    """Training texts, targets, label texts and filters of an lf-json folder."""
    folder = Path(folder)
    if (folder / "train.jsonl").exists():
        labels = lines(folder / "labels.jsonl")
        place = {label["id"]: row for row, label in enumerate(labels)}
        train = lines(folder / "train.jsonl")
        texts = [row["text"] for row in train]
        own = [[place[i] for i in row["labels"]] for row in train]
        names, filters = [label["text"] for label in labels], np.zeros((0, 2), np.int64)
    else:
        labels, train = lines(folder / "lbl.json.gz"), lines(folder / "trn.json.gz")
        names = [label["title"] for label in labels]
        texts = [
            row["title"] if field == "title" else f"{row['title']} {row['content']}"
            for row in train
        ]
        own = [row["target_ind"] for row in train]
        filters = np.loadtxt(folder / "filter_labels_train.txt", dtype=np.int64, ndmin=2)
    indptr = np.concatenate([[0], np.cumsum([len(o) for o in own])])
    columns = np.concatenate([np.array(o, np.int64) for o in own])
    shape = (len(texts), len(names))
    targets = sp.csr_matrix((np.ones(len(columns), np.float32), columns, indptr), shape=shape)
    return texts, targets, names, filters.reshape(-1, 2)


def split(texts, targets, filters, held, limit=None, seed=0):
    """Random training and held-out texts: (texts, targets, filters) of each."""
    order = np.random.default_rng(seed).permutation(len(texts))
    if limit:
        order = order[:limit]
    n = int(held * len(order)) if held < 1 else int(held)
    parts = []
    for rows in (order[n:], order[:n]):
        where = np.full(len(texts), -1)
        where[rows] = np.arange(len(rows))
        own = filters[where[filters[:, 0]] >= 0]
        own = np.stack([where[own[:, 0]], own[:, 1]], axis=1)
        parts.append(([texts[i] for i in rows], targets[rows], own))
    return parts


def measure(scores, truth, filters, k=40):
    """P@1, P@3, P@5 and recall@40 in percent."""
    rows, _ = top_k_of_rows(scores, k + 8)
    if len(filters):
        key = np.int64(truth.shape[1] + 1)
        banned = np.isin(np.arange(len(rows))[:, None] * key + rows, filters @ np.array([key, 1]))
        order = np.argsort(banned | (rows < 0), axis=1, kind="stable")
        rows = np.take_along_axis(np.where(banned, -1, rows), order, 1)
    hits = look_up(sp.csr_matrix(truth), rows[:, :k]) > 0
    totals = np.maximum(np.diff(truth.indptr), 1)
    found = {f"P@{n}": 100 * hits[:, :n].sum() / (n * len(rows)) for n in (1, 3, 5)}
    found["R@40"] = 100 * (hits.sum(axis=1) / totals).mean()
    return found


def show(name, values):
    print(name, " ".join(f"{key} {value:.2f}" for key, value in values.items()), flush=True)


def postings(options):
    """Cost and gain of limits on the labels of a term."""
    texts, targets, names, filters = read(options.data, options.field)
    train, held = split(texts, targets, filters, options.held)
    began = time.perf_counter()
    ranker, terms = LexicalRanker.fit(
        train[0],
        train[1],
        names,
        filters=train[2],
        seconds=options.seconds,
        log=print,
        config=LexicalConfig(many_labels=1 << 30),
    )
    print(f"fit {time.perf_counter() - began:.1f} s, {ranker.vectorizer.size:,} terms, "
          f"{ranker.weights.nnz:,} weights")  # fmt: skip
    queries = ranker.vectorizer.transform(held[0])
    single = [queries[i] for i in range(200)]
    for limit in (1 << 30, 3000, 1000, 300, 100):
        weights = prune_postings(ranker.weights, limit)
        best = {"product": 1e9, "topk": 1e9, "lookup": 1e9, "one": 1e9}
        for _ in range(3):
            t0 = time.process_time()
            scores = product(queries, weights)
            t1 = time.process_time()
            rows, _ = top_k_of_rows(scores, 40)
            t2 = time.process_time()
            look_up(scores, np.concatenate([rows, rows[::-1]], axis=1))
            t3 = time.process_time()
            for row in single:
                top_k_of_rows(product(row, weights), 40)
            t4 = time.process_time()
            own = {"product": t1 - t0, "topk": t2 - t1, "lookup": t3 - t2}
            own = {name: 1e6 * value / len(rows) for name, value in own.items()}
            own["one"] = 1e6 * (t4 - t3) / 200
            best = {name: min(value, own[name]) for name, value in best.items()}
        values = measure(scores, held[1], held[2])
        values["stored"] = scores.nnz / len(rows)
        show(f"max_postings {limit}:", values | {f"{n} us": v for n, v in best.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=["postings"])
    parser.add_argument("data")
    parser.add_argument("--field", default="title")
    parser.add_argument("--held", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    globals()[options.study](options)


if __name__ == "__main__":
    main()
