"""Learning curve of a run that starts from label names: corrections, then training from the run.

    python -m bench ensemble curve DATA [--text title] [--rows 600] [--orders 0 1] [--split train]
        [--points 0 1 10 30 100 ...] [--train 100 500 2000] [--anew]
        [--peers kNN LinearSVC logistic] [--set validation.share=0] [--out curve.json]
    python -m bench ensemble curve FOLDER --draw OUT

At each point P@1 and P@5 on the same rows: of the run with its corrections (P@1 also without the
weights that are fitted on corrections), of the run that ``train --from`` makes of it (points of
``--train``; later corrections are added to that one), and of peers with the same labelled texts.
Rows are of the train split by default, and are never among the corrections. With ``--draw`` nothing
is measured: the JSON files of a folder become a table of means over orders, a table of verdicts and
one plot for each data set, OUT/curve-DATA.svg. A verdict is ``holds`` where a claim is true in
every order, ``does not hold`` where a mean over orders contradicts it by a paired test (p 0.05),
and ``undecided`` otherwise, and with fewer than three orders.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import umpteen
from bench.common.curve_peers import PEERS
from bench.common.curve_tables import means, plot, verdicts
from bench.common.results import facts, load, save
from bench.common.tables import print_rows
from bench.common.training_runs import scratch_folder
from umpteen.data.dataset import Dataset, Split
from umpteen.ranking.queries import Queries

SEED = 29
VOTES_ALONE = "votes alone"
COLUMNS = ("data", "examples", "trained on", "orders", "umpteen", "P@5", VOTES_ALONE)
POINTS = [0, 1, 10, 30, 100, 200, 500, 1000, 2000, 5000]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="a data set, or with --draw a folder of JSON files")
    parser.add_argument("--text", choices=["title", "all"], default="title")
    parser.add_argument("--rows", type=int, default=600, help="rows that P@1 is measured on")
    parser.add_argument("--texts", type=int, default=0, help="unlabelled texts at the start")
    parser.add_argument("--points", type=int, nargs="*", default=POINTS)
    parser.add_argument("--train", type=int, nargs="*", default=[100, 500, 2000])
    parser.add_argument("--anew", action="store_true", help="train without --from")
    parser.add_argument("--orders", type=int, nargs="*", default=[0])
    parser.add_argument("--set", nargs="*", default=[], help="settings of every training")
    parser.add_argument("--split", choices=["train", "test"], default="train")
    parser.add_argument("--encoder", help="a folder; static token vectors by default")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--out", type=Path, help="keep the rows as JSON")
    parser.add_argument("--draw", type=Path, help="folder for plots, as SVG")


def main(options: argparse.Namespace) -> None:
    if options.draw:
        files = sorted(Path(options.data).glob("*.json"))
        found = [row for file in files for row in load(file)["rows"]]
        rows = means(found)
        print_rows(rows, [*COLUMNS, *PEERS], 1)
        print()
        print_rows(verdicts(found), digits=1)
        for name in dict.fromkeys(row["data"] for row in rows):
            file = options.draw / f"curve-{name}.svg"
            file.write_text(plot([row for row in rows if row["data"] == name]) + "\n", "utf-8")
        return
    data, rows = umpteen.load_dataset(options.data), []
    for order in options.orders:
        for row in curve(data, order, options):
            rows.append({"data": data.name, "order": order, **row})
            print(rows[-1], file=sys.stderr, flush=True)
            about = {
                name: getattr(options, name) for name in ("text", "split", "texts", "anew", "set")
            }
            save(options.out, rows, **about, **facts("cpu"))
    print_rows(rows)


def curve(data: Dataset, order: int, options: argparse.Namespace):
    """Yield the rows of one order of labelled texts."""
    which, train = options.text, data["train"]
    rng = np.random.default_rng([SEED, order])
    free = rng.permutation(np.flatnonzero(np.diff(train.filtered_targets().indptr) > 0))
    part, rows = data[options.split], free[: options.rows]
    if options.split == "test":
        rows = np.random.default_rng(SEED).permutation(len(part))[: options.rows]
    held, pool = part.select(np.sort(rows)), free[options.rows :]
    unlabelled = train.select(pool[-options.texts :]).texts(which) if options.texts else None
    with scratch_folder() as folder:
        started = umpteen.start(data.labels, unlabelled, encoder=options.encoder, text=which)
        model, done, trained = started, 0, 0
        for point in options.points:
            new, used = train.select(pool[done:point]), train.select(pool[:point])
            if done < point:
                model.add_examples(new.texts(which), _ids(new, data))
            done = point
            found = {"examples": point, "trained on": trained, **_own(model, held, which)}
            if point:
                encoded = [started.vectors(some.texts(which)).numpy() for some in (used, held)]
                for name in options.peers:
                    scores, seen = PEERS[name](used, held, which, *encoded)
                    found[name] = _first_right(scores, seen, held)
            yield found
            if point in options.train:
                own = Dataset(data.labels, {"train": used}, data.propensity, data.name)
                out, before = folder / f"run-{point}", model.folder
                reading = [f"data.text={which}", *options.set]
                model = umpteen.train(
                    own, out=out, from_run=None if options.anew else before, overrides=reading
                )
                trained = point
                yield {"examples": point, "trained on": trained, **_own(model, held, which)}


def _ids(split: Split, data: Dataset) -> list[list[str]]:
    targets, ids = split.filtered_targets(), data.labels.ids
    return [[ids[c] for c in targets[row].indices] for row in range(len(split))]


def _own(model: umpteen.Predictor, held: Split, which: str) -> dict[str, float]:
    """Return P@1 and P@5 with the corrections; ``evaluate`` measures a run as it was trained.

    ``votes alone`` is P@1 where corrections have no weights of their own.
    """
    texts, snapshot = list(held.texts(which)), model.snapshot()
    queries = Queries(texts, model.vectors(texts))
    truth, found = held.filtered_targets().toarray(), []
    for own in (snapshot, replace(snapshot, corrections=None)):
        rows = model.rank(queries, own, 5, exclude=held.filters).rows
        found.append((truth[np.arange(len(rows))[:, None], rows] > 0) & (rows >= 0))
    with_them, without = found
    return {
        "umpteen": 100.0 * float(with_them[:, 0].mean()),
        "P@5": 100.0 * float(with_them.mean()),
        VOTES_ALONE: 100.0 * float(without[:, 0].mean()),
    }


def _first_right(scores, seen, held: Split) -> float:
    """Return P@1 of (B, S) scores of the labels that were seen."""
    banned = np.zeros((len(held), held.targets.shape[1]), bool)
    banned[held.filters[:, 0], held.filters[:, 1]] = True
    best = seen[np.where(banned[:, seen], -np.inf, scores).argmax(axis=1)]
    truth = held.filtered_targets().toarray() > 0
    return 100.0 * float(truth[np.arange(len(best)), best].mean())
