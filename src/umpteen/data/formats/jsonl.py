"""The ``jsonl`` format: one JSON object per query on each line, or all of them in one array.

For data you make yourself. ``table_columns`` says which fields are read. A folder has
``train.jsonl`` and, as you like, ``validation.jsonl``, ``test.jsonl`` and ``labels.jsonl``; the
suffix may be ``.json``. A single file is a train split. Holds everything a data set
has. Choose ``lf-json`` to exchange data with other software of the field.
"""

from __future__ import annotations

import json
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.json_table import JsonTable, is_array, is_json
from umpteen.data.formats.lines import STDIN, open_bytes, write_lines
from umpteen.data.formats.records import Fields
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.tables import read_tables
from umpteen.data.formats.targets import Unit
from umpteen.data.formats.writing import ALL, label_records, query_records
from umpteen.errors import DataError

HOLDS = ALL
UNIT: Unit = "line"
FILES = shared.file_names(".jsonl", ".json")
LABELS = ("labels.jsonl", "labels.json")
FIELDS = Fields()


def sniff(path: Path) -> bool:
    """Return whether a folder has our files, or a file begins with JSON objects."""
    if path.is_dir():
        # dev.json and val.json belong to lf-json, too.
        return shared.has_any(path, {"train": FILES["train"], "test": FILES["test"]}) or (
            shared.has_any(path, {"validation": FILES["validation"][:3]})
        )
    try:
        with open_bytes(path) as stream:
            start = stream.read(256).decode("utf-8", "replace")
    except DataError:
        return ".jsonl" in path.suffixes
    return is_json(start)


def read(path: Path) -> Dataset:
    """Read a folder, a file or ``-`` whose fields are found by their names; see ``read_table``."""
    return read_table(path, TableOptions())


def read_table(path: Path, options: TableOptions) -> Dataset:
    """Read a folder, a file, or ``-`` for standard input.

    Args:
        path: What to read.
        options: Fields and separator.

    Returns:
        The data set. Without a labels.jsonl the labels are in order of first appearance: in train,
        then validation, then test.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    listed = shared.find_one(path, LABELS) if path.is_dir() else None
    tables = {split: open_table(file, options) for split, file in files(path).items()}
    return read_tables(path, tables, None if listed is None else JsonTable(listed), options)


def open_table(file: Path, options: TableOptions | None = None) -> JsonTable:
    """Return one file, or standard input, as a table whose rows can be read once.

    Args:
        file: The file.
        options: Not used; all formats of tables are opened alike.
    """
    return JsonTable(file)


def write(dataset: Dataset, folder: Path) -> None:
    """Write every split, the labels, filters and dataset.json into a folder that exists."""
    for name, split in dataset.splits.items():
        records = query_records(split, dataset.labels.ids, FIELDS)
        write_lines(folder / FILES[name][0], map(_line, records))
    write_lines(folder / LABELS[0], map(_line, label_records(dataset, FIELDS, metadata=True)))
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the file of each split; row i of a split is line i + 1 of its file."""
    return {"train": path} if path == STDIN else shared.find_splits(path, FILES)


def unit_of(file: Path) -> Unit:
    """Return what row i + 1 is in a file: a line, or only a row of an array."""
    return "row" if file != STDIN and is_array(file) else UNIT


def _line(record: dict[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False)
