"""Learning curve of a run that starts from label names: corrections are added one after another.

    python -m bench ensemble curve DATA [--text title] [--rows 300] [--points 0 10 100 500 2000]
        [--orders 1] [--split train]

At each point P@1 on the same rows: of the run with its corrections, and of k nearest neighbours
over the same vectors and labelled texts. Rows are of the train split by default, and are never
among the corrections.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

import umpteen

SEED = 29


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="a data set")
    parser.add_argument("--text", choices=["title", "all"], default="all")
    parser.add_argument("--rows", type=int, default=300, help="rows that P@1 is measured on")
    parser.add_argument("--texts", type=int, default=2000, help="unlabelled texts at the start")
    parser.add_argument("--points", type=int, nargs="*", default=[0, 10, 100, 500, 2000])
    parser.add_argument("--orders", type=int, default=1)
    parser.add_argument("--split", choices=["train", "test"], default="train")


def main(options: argparse.Namespace) -> None:
    data = umpteen.load_dataset(options.data)
    train = data["train"]
    texts, targets = train.texts(options.text), train.filtered_targets()
    for order in range(options.orders):
        rng = np.random.default_rng([SEED, order])
        free = rng.permutation(np.flatnonzero(np.diff(targets.indptr) > 0))
        part = data[options.split]
        rows = free[: options.rows]
        if options.split == "test":
            rows = rng.permutation(len(part))[: options.rows]
        held = part.select(np.sort(rows))
        free = free[options.rows :]
        unlabelled = [texts[row] for row in free[: options.texts].tolist()]
        model = umpteen.start(data.labels, unlabelled, text=options.text, self_training=False)
        pool, done = free[options.texts :], 0
        for point in options.points:
            new = pool[done:point].tolist()
            done = point
            if new:
                given = [[data.labels.ids[c] for c in targets[row].indices] for row in new]
                model.add_examples([texts[row] for row in new], given)
            used = pool[:point]
            found = {"umpteen": _own(model, held, options.text)}
            if point:
                own = [texts[row] for row in used.tolist()]
                found |= _peers(model, own, targets[used], held, options.text)
            about = {"data": data.name, "order": order, "examples": point}
            print(json.dumps({**about, **{k: round(v, 1) for k, v in found.items()}}), flush=True)


def _own(model: umpteen.Predictor, held, which: str) -> float:
    """Return P@1 with the corrections; ``evaluate`` measures a run as it was trained."""
    best = model.predict(held.texts(which), k=1, exclude=held.filters).rows[:, 0]
    return 100.0 * float((held.filtered_targets().toarray()[np.arange(len(best)), best] > 0).mean())


def _peers(model, texts, targets, held, which) -> dict[str, float]:
    """Train the peers on the labelled texts and measure them."""
    seen = np.unique(targets.indices)
    columns = sp.csr_matrix(targets[:, seen])
    columns.data[:] = 1
    queries, dense = held.texts(which), columns.toarray().astype(np.int8)
    vectors, wanted = model.vectors(texts).numpy(), model.vectors(queries).numpy()
    k = min(10, len(texts))
    distances, near = (
        NearestNeighbors(n_neighbors=k, metric="cosine").fit(vectors).kneighbors(wanted)
    )
    votes = np.zeros((len(queries), len(seen)))
    for place in range(k):
        votes += (1.0 - distances[:, place : place + 1]) * dense[near[:, place]]
    made = {"kNN": votes}
    banned = np.zeros((len(queries), targets.shape[1]), bool)
    banned[held.filters[:, 0], held.filters[:, 1]] = True
    truth = held.filtered_targets().toarray() > 0
    found = {}
    for name, scores in made.items():
        best = seen[np.where(banned[:, seen], -np.inf, scores).argmax(axis=1)]
        found[name] = 100.0 * float(truth[np.arange(len(best)), best].mean())
    return found
