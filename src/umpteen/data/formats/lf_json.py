"""The ``lf-json`` format: trn, tst and lbl files of JSON lines, as in many public benchmarks.

To exchange data with other software of the field. Fields are ``uid, title, content`` and, for
queries, ``target_ind`` (label rows, counted from 0 in the order of lbl) and ``target_rel``. Holds
everything a data set has. Choose ``jsonl`` for data made by hand: it names labels by id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.lines import kind, read_objects, write_lines
from umpteen.data.formats.records import Fields, read_labels, read_queries
from umpteen.data.formats.targets import TargetRows, Unit
from umpteen.data.formats.writing import ALL, label_records, query_records
from umpteen.errors import DataError

HOLDS = ALL
UNIT: Unit = "line"
FILES = {"train": ("trn.json",), "validation": ("dev.json", "val.json"), "test": ("tst.json",)}
LABELS = ("lbl.json",)
FIELDS = Fields(title=("title",), id="uid", labels="target_ind", relevance="target_rel")


def sniff(path: Path) -> bool:
    """Return whether the folder has a trn, tst or lbl file."""
    return shared.has_any(path, {**FILES, "labels": LABELS})


def read(path: Path) -> Dataset:
    """Read a folder.

    Args:
        path: The folder.

    Returns:
        The data set; label ids are the labels' uids.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    found = files(path)
    listed = shared.require_one(path, LABELS, "the labels")
    labels = read_labels(read_objects(listed), listed, FIELDS)
    splits, notes = {}, []
    for name, file in found.items():
        queries = read_queries(read_objects(file), TargetRows(file), _check_rows, FIELDS)
        splits[name] = queries.split(name, path, labels)
        notes += queries.targets.notes()
    return shared.finish(path, labels, splits, notes)


def write(dataset: Dataset, folder: Path) -> None:
    """Write every split and the labels, compressed, with filters and dataset.json."""
    rows = range(len(dataset.labels))
    for name, split in dataset.splits.items():
        records = query_records(split, rows, FIELDS)
        write_lines(folder / f"{FILES[name][0]}.gz", _lines(records, weighted=True))
    labels = _lines(label_records(dataset, FIELDS, metadata=True), weighted=False)
    write_lines(folder / f"{LABELS[0]}.gz", labels)
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the file of each split; row i of a split is line i + 1 of its file."""
    if not path.is_dir():
        raise DataError("expected a folder with trn.json, tst.json and lbl.json", path=path)
    return shared.find_splits(path, FILES)


def _check_rows(values: Sequence[Any]) -> list[int]:
    wrong = next((value for value in values if type(value) is not int), None)
    if wrong is not None:
        raise DataError(f"'target_ind' holds {kind(wrong)} ({wrong!r}); expected whole numbers")
    return list(values)


def _lines(records: Iterator[dict[str, Any]], *, weighted: bool) -> Iterator[str]:
    for record in records:
        # Other readers of this format expect these fields even where they say nothing.
        record.setdefault(FIELDS.content, "")
        if weighted:
            record.setdefault(FIELDS.relevance, [1.0] * len(record[FIELDS.labels]))
        yield json.dumps(record, ensure_ascii=False)
