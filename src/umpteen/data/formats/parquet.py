"""The ``parquet`` format: tables with a ``text`` and a ``labels`` column. Needs the extra parquet.

For large data and for data from data frames. The columns are those of ``csv``; ``labels`` is a list
of strings or whole numbers, or text as in a csv cell. Holds everything a data set has.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.arrow_table import ROWS_AT_ONCE, ArrowTable
from umpteen.data.formats.lines import check_fits, open_bytes
from umpteen.data.formats.records import Fields
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.tables import read_tables
from umpteen.data.formats.targets import Unit
from umpteen.data.formats.writing import ALL, label_records, query_records
from umpteen.errors import DataError
from umpteen.extras import require

HOLDS = ALL - {"label metadata"}
UNIT: Unit = "row"
FILES = shared.file_names(".parquet")
LABELS = ("labels.parquet",)
MAGIC = b"PAR1"
FIELDS = Fields()


def sniff(path: Path) -> bool:
    """Return whether a folder has our files, or a file begins as parquet files do."""
    if path.is_dir():
        return shared.has_any(path, FILES) or bool(_hub_shards(path))
    try:
        with open_bytes(path) as stream:
            return stream.read(4) == MAGIC
    except DataError:
        return ".parquet" in path.suffixes


def read(path: Path) -> Dataset:
    """Read a folder or a file whose columns are found by their names; see ``read_table``."""
    return read_table(path, TableOptions())


def read_table(path: Path, options: TableOptions) -> Dataset:
    """Read a folder or a file.

    Args:
        path: What to read.
        options: Columns and separator.

    Returns:
        The data set. Without a file of labels they are in order of first appearance.

    Raises:
        DataError: With file, row and column, if something is wrong.
        MissingExtra: If pyarrow is not installed.
    """
    require("pyarrow.parquet", extra="parquet")
    listed = shared.find_one(path, LABELS) if path.is_dir() else None
    shards = {name: list(map(open_table, files)) for name, files in _shards(path).items()}
    tables = {name: first.followed_by(rest) for name, (first, *rest) in shards.items()}
    return read_tables(path, tables, None if listed is None else open_table(listed), options)


def write(dataset: Dataset, folder: Path) -> None:
    """Write every split, the labels, filters and dataset.json into a folder that exists."""
    for name, split in dataset.splits.items():
        records = list(query_records(split, dataset.labels.ids, FIELDS))
        _write(folder / FILES[name][0], records)
    _write(folder / LABELS[0], list(label_records(dataset, FIELDS)))
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the file of each split, the first where a split has several."""
    return {name: shards[0] for name, shards in _shards(path).items()}


def _shards(path: Path) -> dict[str, list[Path]]:
    found = _hub_shards(path) if path.is_dir() and not shared.has_any(path, FILES) else {}
    return found or {name: [file] for name, file in shared.find_splits(path, FILES).items()}


def _hub_shards(folder: Path) -> dict[str, list[Path]]:
    """Return the files of a repository of data as the Hugging Face hub names them, by split."""
    found = {}
    for split, names in shared.STEMS.items():
        for place in (folder, folder / "data"):
            files = [each for name in names for each in place.glob(f"{name}-*-of-*.parquet")]
            if files:
                found[split] = sorted(files)
                break
    return found


def open_table(file: Path, options: TableOptions | None = None) -> ArrowTable:
    """Return one file as a table whose rows are read group by group.

    Args:
        file: The file, plain or gzip; a gzip file is unpacked in memory.
        options: Not used; all formats of tables are opened alike.

    Raises:
        DataError: If it is not a parquet file.
    """
    tables = require("pyarrow.parquet", extra="parquet")
    arrow = require("pyarrow", extra="parquet")
    source: Any = str(file)
    with open_bytes(file) as stream:
        if not isinstance(getattr(stream, "raw", None), io.FileIO):
            source = arrow.BufferReader(stream.read())
    try:
        opened = tables.ParquetFile(source, page_checksum_verification=True)
        groups = (opened.metadata.row_group(n) for n in range(opened.metadata.num_row_groups))
        check_fits(file, sum(group.total_byte_size for group in groups))
        check_fits(file, 8 * opened.metadata.num_rows)
        schema = opened.schema_arrow
    except DataError:
        raise
    except Exception as error:
        # Damage shows as errors of many kinds, from Arrow's own to those of text decoding.
        raise DataError(f"the file cannot be read as parquet ({error})", path=file) from error
    return ArrowTable(
        file, schema, lambda wanted: opened.iter_batches(ROWS_AT_ONCE, columns=wanted)
    )


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
