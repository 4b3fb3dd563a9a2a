"""The ``parquet`` format: tables with a ``text`` and a ``labels`` column. Needs the extra parquet.

For large data and for data from data frames. The columns are those of ``csv``; ``labels`` is a list
of strings or whole numbers, or text as in a csv cell. Holds everything a data set has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.features import ALL
from umpteen.data.formats.lines import open_bytes
from umpteen.data.formats.records import Fields
from umpteen.data.formats.tables import read_tables
from umpteen.data.formats.targets import Unit
from umpteen.data.formats.writing import label_records, query_records
from umpteen.errors import DataError
from umpteen.extras import require

HOLDS = ALL
UNIT: Unit = "row"
FILES = {
    "train": ("train.parquet",),
    "validation": ("validation.parquet", "dev.parquet", "val.parquet"),
    "test": ("test.parquet",),
}
LABELS = ("labels.parquet",)
MAGIC = b"PAR1"
FIELDS = Fields()


def sniff(path: Path) -> bool:
    """Return whether a folder has our files, or a file begins as parquet files do."""
    if path.is_dir():
        return shared.has_any(path, FILES)
    try:
        with open_bytes(path) as stream:
            return stream.read(4) == MAGIC
    except DataError:
        return ".parquet" in path.suffixes


def read(path: Path) -> Dataset:
    """Read a folder or a file.

    Args:
        path: What to read.

    Returns:
        The data set. Without a file of labels they are in order of first appearance.

    Raises:
        DataError: With file, row and column, if something is wrong.
        MissingExtra: If pyarrow is not installed.
    """
    require("pyarrow.parquet", extra="parquet")
    listed = shared.find_one(path, LABELS) if path.is_dir() else None
    return read_tables(path, files(path), listed, _rows, unit="row")


def write(dataset: Dataset, folder: Path) -> None:
    """Write every split, the labels, filters and dataset.json into a folder that exists."""
    for name, split in dataset.splits.items():
        records = list(query_records(split, dataset.labels.ids, FIELDS))
        _write(folder / FILES[name][0], records)
    _write(folder / LABELS[0], list(label_records(dataset, FIELDS)))
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the file of each split."""
    return shared.find_splits(path, FILES)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    tables = require("pyarrow.parquet", extra="parquet")
    wanted = (*FIELDS.title, FIELDS.content, FIELDS.id, FIELDS.labels, FIELDS.relevance)
    with open_bytes(path) as stream:
        content = stream.read()
    try:
        arrow = require("pyarrow", extra="parquet")
        file = tables.ParquetFile(arrow.BufferReader(content), page_checksum_verification=True)
        names = list(file.schema_arrow.names)
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise ValueError(f"column {double!r} is there twice")
        table = file.read(columns=[name for name in names if name in wanted])
        table.validate(full=True)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except Exception as error:
        # Damage shows as errors of many kinds, from Arrow's own to those of text decoding.
        raise DataError(f"the file cannot be read as parquet ({error})", path=path) from error
    # Columns we do not read are named too, so that a message can say what is there.
    others = dict.fromkeys(name for name in names if name not in columns)
    for row in range(table.num_rows):
        yield row + 1, {**{name: column[row] for name, column in columns.items()}, **others}


def _write(path: Path, records: list[dict[str, Any]]) -> None:
    arrow = require("pyarrow", extra="parquet")
    tables = require("pyarrow.parquet", extra="parquet")
    kinds = {
        FIELDS.labels: arrow.list_(arrow.string()),
        FIELDS.relevance: arrow.list_(arrow.float32()),
    }
    names = list(records[0]) if records else []
    schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in names])
    try:
        table = arrow.Table.from_pylist(records, schema=schema)
    except UnicodeEncodeError as error:
        raise DataError(
            "a text holds half of a surrogate pair, which cannot be written as UTF-8"
        ) from error
    tables.write_table(table, path, write_page_checksum=True)
