"""Whether Gandalf loses by rows of labels whose text is a test text.

    python -m bench training label-texts DATA --write FOLDER [--share 0.1]
    umpteen study bench/studies/gandalf-label-texts.toml --out STUDY --path debian=FOLDER ..
    python -m bench training label-texts FOLDER/all --study STUDY --name debian

The first call prints how many targets of such a row are answers of that text, and writes the data
set three times: `all`; `left-out`, in which labels whose text is a test text have no text, so that
Gandalf makes no row of them; and `as-many`, in which as many other labels, drawn, have none. With
`--share` the data set is cut to the first labels in the order of the alphabet, and to texts up to
the last of these that have one of them. The last call prints differences between runs, apart for
test texts that are a label's text and for others. Test texts choose labels here: this explains a
loss and is no way to train.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bench.common import options
from bench.common.tables import print_rows
from umpteen.data.augment.gandalf import label_targets
from umpteen.data.augment.graph import GraphOptions
from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats import lf_json, load_dataset
from umpteen.data.labels import LabelSet

COPIES = ("all", "left-out", "as-many")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the three copies here")
    parser.add_argument("--share", type=float, default=1.0, help="the share of labels to keep")
    parser.add_argument("--study", type=Path, help="compare the runs of this study")
    parser.add_argument("--name", help="the data set's name in it")


def plain(text: str) -> str:
    """A text as it is compared."""
    return text.strip().casefold()


def same_text(split: Split, labels: LabelSet) -> sp.csr_matrix:
    """Which labels have the text of a query as theirs, (N, L), 0 and 1."""
    rows: dict[str, list[int]] = {}
    for row, title in enumerate(labels.titles):
        rows.setdefault(plain(title), []).append(row)
    found = [rows.get(plain(title), []) for title in split.titles]
    lengths = np.array([len(each) for each in found])
    columns = np.array([row for each in found for row in each], np.int64)
    shape = (len(split), len(labels))
    return sp.csr_matrix(
        (np.ones(len(columns)), (np.repeat(np.arange(len(split)), lengths), columns)), shape=shape
    )


def cut(data: Dataset, share: float) -> Dataset:
    """The first labels in the order of the alphabet, and the texts up to there that have one."""
    titles = np.array([plain(title) for title in data.labels.titles], object)
    last = np.sort(titles)[max(1, round(share * len(titles))) - 1]
    kept = np.flatnonzero(titles <= last)
    place = np.full(len(titles), -1)
    place[kept] = np.arange(len(kept))
    splits = {}
    for name, split in data.splits.items():
        targets = sp.csr_matrix(split.targets[:, kept])
        filters = split.filters[place[split.filters[:, 1]] >= 0]
        filters = np.column_stack([filters[:, 0], place[filters[:, 1]]])
        own = dataclasses.replace(split, targets=targets, filters=filters)
        early = np.array([plain(title) <= last for title in split.titles], bool)
        splits[name] = own.select(
            np.flatnonzero(early & (own.filtered_targets().getnnz(axis=1) > 0))
        )
    labels = LabelSet([data.labels.ids[k] for k in kept], [data.labels.titles[k] for k in kept])
    return dataclasses.replace(data, labels=labels, splits=splits)


def statistics(data: Dataset) -> dict[str, Any]:
    """What Gandalf's row of a label teaches about a test text of the same words."""
    test, n = data["test"], len(data.labels)
    match, answers = same_text(test, data.labels), test.filtered_targets() > 0
    soft, _ = label_targets(
        data["train"].filtered_targets(), np.arange(n), GraphOptions(), lambda done, total: None
    )
    soft = sp.csr_matrix(soft - sp.diags(soft.diagonal()))
    soft.eliminate_zeros()
    of_text = sp.csr_matrix(match @ soft)
    right = of_text.multiply(answers)
    has = np.flatnonzero(of_text.getnnz(axis=1))
    heaviest = [bool(answers[row, of_text[row].argmax()]) for row in has]
    texts = np.flatnonzero(match.getnnz(axis=1))
    return {
        "labels": n,
        "train": len(data["train"]),
        "test": len(test),
        "labels that are test texts, %": 100 * np.mean(match.getnnz(axis=0) > 0),
        "test texts that are labels, %": 100 * len(texts) / len(test),
        "targets a row": of_text.nnz / max(1, len(texts)),
        "targets that are answers, %": 100 * right.nnz / max(1, of_text.nnz),
        "heaviest is one, %": 100 * float(np.mean(heaviest or [False])),
        "answers that are targets, %": 100 * right.nnz / answers[texts].nnz,
    }


def write_copies(data: Dataset, folder: Path) -> None:
    """Write the data set with the texts of all labels, and of some left out."""
    of_test = same_text(data["test"], data.labels).getnnz(axis=0) > 0
    others = np.flatnonzero(~of_test)
    drawn = np.random.default_rng(0x7E).permutation(others)[: of_test.sum()]
    for name, rows in zip(COPIES, ([], np.flatnonzero(of_test), drawn), strict=True):
        titles = list(data.labels.titles)
        for row in rows:
            titles[row] = ""
        labels = LabelSet(data.labels.ids, titles)
        (folder / name).mkdir(parents=True, exist_ok=True)
        lf_json.write(dataclasses.replace(data, labels=labels), folder / name)


def differences(data: Dataset, study: Path, name: str) -> Iterator[Any]:
    """Gandalf on each copy minus the queries alone, by kind of test text."""
    from umpteen.study.paired import PAIRED_METRICS, Difference, two_sided_p_value

    is_label = same_text(data["test"], data.labels).getnnz(axis=1) > 0
    kinds = {"label texts": is_label, "other texts": ~is_label}
    runs = sorted((study / "per_query").glob(f"{name}--*--plain--seed*.npz"))
    presets = list(dict.fromkeys(file.name.split("--")[1] for file in runs))
    for preset in presets:
        for copy in COPIES:
            source = name if copy == "all" else f"{name}-{copy}"
            pairs = [
                (study / "per_query" / f"{source}--{preset}--gandalf--{seed}", file)
                for file, seed in ((file, file.name.split("--")[3]) for file in runs)
                if file.name.split("--")[1] == preset
            ]
            loaded = [(np.load(a), np.load(b)) for a, b in pairs if a.is_file()]
            for metric in PAIRED_METRICS if loaded else ():
                key = f"classifier/{metric}"
                each = np.stack([a[key].astype(float) - b[key] for a, b in loaded])
                for kind, chosen in kinds.items():
                    of_kind: NDArray[Any] = each[:, chosen]
                    yield Difference(
                        f"{name}, {kind}",
                        preset,
                        f"gandalf, {copy}",
                        "plain",
                        "classifier",
                        metric,
                        mean=float(of_kind.mean()),
                        by_seed=tuple(of_kind.mean(axis=1).tolist()),
                        p=two_sided_p_value(of_kind.mean(axis=0)),
                    )


def main(args: argparse.Namespace) -> None:
    data = load_dataset(args.data)
    if args.study is not None:
        from umpteen.study.paired import table

        found = sorted(differences(data, args.study, args.name), key=lambda each: each.data)
        print(table(found), end="")
        return
    if args.share < 1:
        data = cut(data, args.share)
    print_rows([statistics(data)], digits=1)
    if args.write is not None:
        write_copies(data, args.write)
