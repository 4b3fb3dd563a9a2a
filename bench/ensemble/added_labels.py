"""How well labels are found that were added after training, and what that costs the others.

    python -m bench ensemble added-labels DATA --text title [--run RUN] [--share 0.1] [--seed 0]

A tenth of the labels is taken out of the train split, texts and all; what is left of it is trained
on (the frugal default, CPU), or RUN is a run that this script made before with the same options.
Then the labels are added as ``umpteen labels add`` does. Answers to a seventh of the train split's
queries, of which training saw none, are judged with all their labels. The test split is not read.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import umpteen
from bench.common import options
from bench.common.tables import print_rows
from umpteen.data.dataset import Dataset, Split, drop_pairs
from umpteen.data.labels import LabelSet
from umpteen.store import NewLabel

JUDGED = 0.15


def part(split: Split, rows, order) -> Split:
    """Some queries, with labels in another order, of which those at -1 are left out."""
    some = split.select(rows)
    kept = np.flatnonzero(order >= 0)
    columns = kept[np.argsort(order[kept])]
    filters = some.filters[order[some.filters[:, 1]] >= 0]
    filters = np.column_stack([filters[:, 0], order[filters[:, 1]]]).astype(np.int64)
    return Split(some.titles, some.targets[:, columns].tocsr(), some.contents, None, filters)


def without_some_labels(data: Dataset, share: float, seed: int):
    """What is trained on, the queries to judge by with the labels left out last, and those."""
    rng = np.random.default_rng([seed, 0xADD])
    train, n = data["train"], len(data.labels)
    hidden = np.sort(rng.permutation(n)[: int(n * share)])
    kept = np.setdiff1d(np.arange(n), hidden)
    order = np.empty(n, np.int64)
    order[np.concatenate([kept, hidden])] = np.arange(n)
    judged = np.zeros(len(train), bool)
    judged[rng.permutation(len(train))[: int(JUDGED * len(train))]] = True
    seen = np.where(order < len(kept), order, -1)
    left = part(train, np.flatnonzero(~judged), seen)
    left = left.select(np.flatnonzero(left.filtered_targets().getnnz(axis=1)))
    names = [[column[row] for row in kept] for column in (data.labels.ids, data.labels.titles)]
    labels = LabelSet(names[0], names[1])
    learned = Dataset(labels, {"train": left}, data.propensity, data.name)
    added = [NewLabel(data.labels.ids[row], data.labels.titles[row]) for row in hidden]
    return learned, part(train, np.flatnonzero(judged), order), added


def judge(model, split: Split, n_trained: int, head: str, text: str) -> dict[str, float]:
    """Percent; a label's rows from ``n_trained`` on are those that were added."""
    truth = drop_pairs(split.targets, split.filters).tocsr()
    asked = np.flatnonzero(truth.getnnz(axis=1))
    texts = split.texts(text)
    top = model.predict(texts, 10, head=head, exclude=split.filters).rows
    hit = np.asarray(truth.todense(), bool)[np.arange(len(top))[:, None], top] & (top >= 0)
    new = top >= n_trained
    n_new, n_old = truth[:, n_trained:].nnz, truth[:, :n_trained].nnz
    has_new = truth[:, n_trained:].getnnz(axis=1) > 0
    only_old = ~has_new & (truth.getnnz(axis=1) > 0)
    return {
        "R@1 new": 100 * (hit & new)[:, 0].sum() / n_new,
        "R@5 new": 100 * (hit & new)[:, :5].sum() / n_new,
        "R@10 new": 100 * (hit & new).sum() / n_new,
        "share of first answers": 100 * new[:, 0].mean(),
        "share of five": 100 * new[:, :5].mean(),
        "P@1, queries without new": 100 * hit[only_old, 0].mean(),
        "R@10 others": 100 * (hit & ~new).sum() / n_old,
        "P@1": 100 * hit[asked, 0].mean(),
        "P@5": 100 * hit[asked, :5].mean(),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser)
    parser.add_argument("--run", help="where the run is, or is to be")
    parser.add_argument("--share", type=float, default=0.1)
    options.add_seed(parser)
    parser.add_argument("--fit", action="store_true", help="fit the ensemble of RUN again")
    options.add_settings(parser)


def main(args: argparse.Namespace) -> None:
    data = umpteen.load_dataset(args.data)
    learned, split, added = without_some_labels(data, args.share, args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(args.run) if args.run else Path(scratch) / "run"
        if not run.exists():
            settings = [f"data.text={args.text}", f"seed={args.seed}", *args.settings]
            umpteen.train(learned, out=run, overrides=settings, device="cpu")
            umpteen.Predictor.load(run, device="cpu").add_labels(added)
        elif args.fit:
            from umpteen.config.settings import from_mapping
            from umpteen.run_folder import RunFolder
            from umpteen.training.fit_ensemble import fit_ensemble_of_run

            folder = RunFolder(run)
            settings = from_mapping(folder.read_settings(to_build=True), source=str(folder.config))
            fit_ensemble_of_run(folder, learned, settings, device="cpu", log=print, again=True)
        model = umpteen.Predictor.load(run, device="cpu")
        rows = [
            {"head": head, **judge(model, split, len(learned.labels), head, args.text)}
            for head in model.heads
        ]
    print(f"{len(added)} labels added to {len(learned.labels)}; {len(split)} queries")
    print_rows(rows, digits=1)
