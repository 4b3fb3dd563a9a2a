"""The ``csv`` and ``tsv`` formats: a table of text, one row per text.

For data from spreadsheets and databases. ``table_columns`` says which columns are read. A folder
has ``train.csv`` and, as you like, ``validation.csv``, ``test.csv`` and ``labels.csv`` with ``id``
and ``text``; a single file is a train split. Holds everything a data set has. Fields follow RFC
4180: quoted where needed, a quote inside is doubled, line breaks are kept.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.delimited_table import DelimitedTable
from umpteen.data.formats.label_separators import can_be_joined, join_cell
from umpteen.data.formats.lines import STDIN, read_lines, write_lines
from umpteen.data.formats.records import Fields
from umpteen.data.formats.table_columns import known_table
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.tables import read_tables
from umpteen.data.formats.targets import Unit
from umpteen.data.formats.writing import ALL, label_records, query_records
from umpteen.errors import DataError

FIELDS = Fields()


@dataclass(frozen=True)
class Delimited:
    """One format of this family; see the module for what it holds."""

    suffix: str
    delimiter: str

    HOLDS: ClassVar[frozenset[str]] = ALL - {"label metadata"}
    UNIT: ClassVar[Unit] = "row"

    def sniff(self, path: Path) -> bool:
        """Return whether a folder has our files, or a file has our suffix or a known header."""
        if path.is_dir():
            return shared.has_any(path, self._names)
        named = f".{self.suffix}" in path.suffixes
        try:
            header = next((line for _, line in read_lines(path)), "")
        except DataError:
            return named
        if header.startswith(("PAR1", "{")) or header.lstrip().startswith("[{"):
            return False
        if named or {".csv", ".tsv"} & set(path.suffixes):
            return named
        try:
            columns: list[str] = next(iter(csv.reader([header], delimiter=self.delimiter)), [])
        except csv.Error:
            return False
        return known_table(columns)

    def read(self, path: Path) -> Dataset:
        """Read a folder or a file whose columns are found by their names; see ``read_table``."""
        return self.read_table(path, TableOptions())

    def read_table(self, path: Path, options: TableOptions) -> Dataset:
        """Read a folder or a file.

        Args:
            path: What to read.
            options: Columns, separators, header.

        Returns:
            The data set. Without a file of labels they are in order of first appearance.

        Raises:
            DataError: With file, line and column, if something is wrong.
        """
        folder = path != STDIN and path.is_dir()
        listed = shared.find_one(path, (f"labels.{self.suffix}",)) if folder else None
        tables = {name: self.open(file, options) for name, file in self.files(path).items()}
        label_table = None if listed is None else self.open(listed, TableOptions())
        return read_tables(path, tables, label_table, options)

    def open(self, file: Path, options: TableOptions) -> DelimitedTable:
        """Return one file as a table whose rows can be read once."""
        return DelimitedTable(file, options, self.delimiter)

    def write(self, dataset: Dataset, folder: Path) -> None:
        """Write every split, the labels, filters and dataset.json into a folder that exists."""
        joined = can_be_joined(dataset.labels.ids)
        for name, split in dataset.splits.items():
            rows = query_records(split, dataset.labels.ids, FIELDS)
            self._write(folder / self._names[name][0], _flat(rows, joined=joined))
        self._write(folder / f"labels.{self.suffix}", label_records(dataset, FIELDS))
        shared.write_shared(dataset, folder)

    def files(self, path: Path) -> dict[str, Path]:
        """Return the file of each split; the header is not counted as a row."""
        return shared.find_splits(path, self._names)

    @property
    def _names(self) -> dict[str, tuple[str, ...]]:
        return shared.file_names(f".{self.suffix}")

    def _write(self, path: Path, records: Iterator[dict[str, Any]]) -> None:
        def lines() -> Iterator[str]:
            header: list[str] | None = None
            for record in records:
                if header is None:
                    header = list(record)
                    yield self._line(header)
                yield self._line(record.values())

        write_lines(path, lines())

    def _line(self, fields: Iterable[str]) -> str:
        buffer = io.StringIO()
        # The writer quotes what its own line end contains, so \r must be in it to be quoted.
        csv.writer(buffer, delimiter=self.delimiter, lineterminator="\r\n").writerow(fields)
        return buffer.getvalue().removesuffix("\r\n")


CSV = Delimited("csv", ",")
TSV = Delimited("tsv", "\t")


def _flat(records: Iterator[dict[str, Any]], *, joined: bool) -> Iterator[dict[str, Any]]:
    for record in records:
        for name in (FIELDS.labels, FIELDS.relevance):
            if name in record:
                record[name] = join_cell(record[name], joined=joined)
        yield record
