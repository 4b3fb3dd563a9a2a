"""The ``jsonl`` format: one JSON object per query, labels by id or name.

For data you make yourself. A folder has ``train.jsonl`` and, as you like, ``validation.jsonl``,
``test.jsonl`` and ``labels.jsonl``; a single file is a train split. Holds everything a data set
has. Choose ``lf-json`` to exchange data with other software of the field.
"""

from __future__ import annotations

import json
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.features import ALL
from umpteen.data.formats.lines import STDIN, read_lines, read_objects, write_lines
from umpteen.data.formats.records import Fields, LabelNames, read_labels, read_queries
from umpteen.data.formats.targets import TargetRows, Unit
from umpteen.data.formats.writing import label_records, query_records
from umpteen.errors import DataError

HOLDS = ALL
UNIT: Unit = "line"
FILES = {
    "train": ("train.jsonl",),
    "validation": ("validation.jsonl", "dev.jsonl", "val.jsonl"),
    "test": ("test.jsonl",),
}
LABELS = ("labels.jsonl",)
FIELDS = Fields()


def sniff(path: Path) -> bool:
    """Return whether a folder has our files, or a file begins with a JSON object."""
    if path.is_dir():
        return shared.has_any(path, FILES)
    try:
        first = next((line for _, line in read_lines(path)), "")
    except DataError:
        return ".jsonl" in path.suffixes
    return first.lstrip().startswith("{")


def read(path: Path) -> Dataset:
    """Read a folder, a file, or ``-`` for standard input.

    Args:
        path: What to read.

    Returns:
        The data set. Without a labels.jsonl the labels are in order of first appearance: in train,
        then validation, then test.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    listed = shared.find_one(path, LABELS) if path.is_dir() else None
    labels = None if listed is None else read_labels(read_objects(listed), listed, FIELDS)
    names = LabelNames(labels)
    queries = {
        split: read_queries(read_objects(file), TargetRows(file), names, FIELDS)
        for split, file in files(path).items()
    }
    label_set = names.label_set()
    splits = {name: found.split(name, path, label_set) for name, found in queries.items()}
    return shared.finish(path, label_set, splits)


def write(dataset: Dataset, folder: Path) -> None:
    """Write every split, the labels, filters and dataset.json into a folder that exists."""
    for name, split in dataset.splits.items():
        records = query_records(split, dataset.labels.ids, FIELDS)
        write_lines(folder / FILES[name][0], map(_line, records))
    write_lines(folder / LABELS[0], map(_line, label_records(dataset, FIELDS)))
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the file of each split; row i of a split is line i + 1 of its file."""
    return {"train": path} if path == STDIN else shared.find_splits(path, FILES)


def _line(record: dict[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False)
