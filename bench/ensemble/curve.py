"""Learning curve of a run that starts from label names: corrections, then training from the run.

    python -m bench ensemble curve DATA [--text title] [--rows 600] [--orders 0 1] [--split train]
        [--points 0 1 10 30 100 ...] [--train 100 500 2000] [--anew]
        [--peers kNN LinearSVC logistic] [--out curve.json]
    python -m bench ensemble curve FOLDER --draw OUT

At each point P@1 and P@5 on the same rows: of the run with its corrections (P@1 also without the
weights that are fitted on corrections), of the run that ``train --from`` makes of it (points of
``--train``; later corrections are added to that one), and of peers with the same labelled texts.
Rows are of the train split by default, and are never among the corrections. With ``--draw`` nothing
is measured: the JSON files of a folder become a table of means over orders and one plot for each
data set, OUT/curve-DATA.svg.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import umpteen
from bench.common.curve_peers import PEERS
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
    parser.add_argument("--split", choices=["train", "test"], default="train")
    parser.add_argument("--encoder", help="a folder; static token vectors by default")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--out", type=Path, help="keep the rows as JSON")
    parser.add_argument("--draw", type=Path, help="folder for plots, as SVG")


def main(options: argparse.Namespace) -> None:
    if options.draw:
        files = sorted(Path(options.data).glob("*.json"))
        rows = means([row for file in files for row in load(file)["rows"]])
        print_rows(rows, [*COLUMNS, *PEERS])
        for name in dict.fromkeys(row["data"] for row in rows):
            file = options.draw / f"curve-{name}.svg"
            file.write_text(plot([row for row in rows if row["data"] == name]) + "\n", "utf-8")
        return
    data, rows = umpteen.load_dataset(options.data), []
    for order in options.orders:
        for row in curve(data, order, options):
            rows.append({"data": data.name, "order": order, **row})
            print(rows[-1], file=sys.stderr, flush=True)
            about = {name: getattr(options, name) for name in ("text", "split", "texts", "anew")}
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
                reading = [f"data.text={which}"]
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


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over orders, in the order of the curve."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["data"], row["examples"], row["trained on"]), []).append(row)
    made = []
    for (data, examples, trained), own in sorted(found.items()):
        about = {"data": data, "examples": examples, "trained on": trained, "orders": len(own)}
        shown = {
            name: float(np.mean([row[name] for row in own]))
            for name in ("umpteen", "P@5", VOTES_ALONE, *PEERS)
            if all(name in row for row in own)
        }
        made.append({**about, **shown})
    return made


def plot(rows: list[dict[str, Any]]) -> str:
    """Draw one data set: a line for umpteen and for each peer, the points evenly spaced."""
    from umpteen.report.charts import Line, line_chart
    from umpteen.study.drawing import stand_alone

    points = sorted({row["examples"] for row in rows})
    lines, names = [], ["umpteen", *PEERS]
    for place, name in enumerate(names):
        # Of two values at a point, before and after training, the later one is drawn.
        own = {row["examples"]: row[name] for row in rows if name in row}
        xs = [float(points.index(point)) for point in own]
        lines.append(Line(name, f"s{place}", xs, list(own.values())))
    title = f"P@1 of {rows[0]['data']} after more and more labelled texts"
    about = ", ".join(f"{point:,}" for point in points)
    return stand_alone(title, line_chart(title, lines, x_title=f"labelled texts: {about}"), names)
