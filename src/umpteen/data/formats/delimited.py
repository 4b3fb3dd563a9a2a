"""The ``csv`` and ``tsv`` formats: a table with a header, columns ``text`` and ``labels``.

For data from spreadsheets and databases. Columns: ``text``, or ``title`` and ``content``;
``labels`` (see ``cells`` for how several share a cell); optionally ``id`` and ``relevance``; others
are ignored. A folder has ``train.csv`` and, as you like, ``validation.csv``, ``test.csv`` and
``labels.csv`` with ``id`` and ``text``; a single file is a train split. Holds everything a data set
has. Fields follow RFC 4180: quoted where needed, a quote inside is doubled, line breaks are kept.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.features import ALL
from umpteen.data.formats.label_separators import can_be_joined, join_cell
from umpteen.data.formats.lines import read_lines, shown, write_lines
from umpteen.data.formats.records import Fields
from umpteen.data.formats.tables import TEXT_COLUMNS, read_tables
from umpteen.data.formats.targets import Unit
from umpteen.data.formats.writing import label_records, query_records
from umpteen.errors import DataError

FIELDS = Fields()


@dataclass(frozen=True)
class Delimited:
    """One format of this family; see the module for what it holds."""

    suffix: str
    delimiter: str

    HOLDS: ClassVar[frozenset[str]] = ALL
    UNIT: ClassVar[Unit] = "row"

    def sniff(self, path: Path) -> bool:
        """Return whether a folder has our files, or a file's header has our columns."""
        if path.is_dir():
            return shared.has_any(path, self._names)
        try:
            header = next((line for _, line in read_lines(path)), "")
            columns: list[str] = next(iter(self._reader([header])), [])
        except (DataError, csv.Error):
            return f".{self.suffix}" in path.suffixes
        return "labels" in columns and any(name in columns for name in TEXT_COLUMNS)

    def read(self, path: Path) -> Dataset:
        """Read a folder or a file.

        Args:
            path: What to read.

        Returns:
            The data set. Without a file of labels they are in order of first appearance.

        Raises:
            DataError: With file, line and column, if something is wrong.
        """
        listed = shared.find_one(path, (f"labels.{self.suffix}",)) if path.is_dir() else None
        return read_tables(path, self.files(path), listed, self._records, unit="line")

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
        stems = {"train": ("train",), "validation": ("validation", "dev", "val"), "test": ("test",)}
        return {
            split: tuple(f"{stem}.{self.suffix}" for stem in names)
            for split, names in stems.items()
        }

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    def _records(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        lines = (line for _, line in read_lines(path, keep_ends=True))
        reader = self._reader(lines)
        header: list[str] | None = None
        with _any_field_size():
            while True:
                number = reader.line_num + 1
                try:
                    row = next(reader, None)
                except csv.Error as error:
                    raise DataError(
                        f"the fields cannot be separated ({error}); expected them separated by "
                        f'{self.delimiter!r}, quoted with " and a quote inside doubled',
                        path=shown(path),
                        line=number,
                    ) from error
                if row is None:
                    break
                if header is None:
                    header = row
                    _check_header(header, path)
                elif len(row) == len(header):
                    yield number, dict(zip(header, row, strict=True))
                elif row:
                    raise DataError(
                        f"the row has {len(row)} fields, the header {len(header)}; "
                        "quote a field that holds the separator",
                        path=shown(path),
                        line=number,
                    )
        if header is None:
            raise DataError("the file is empty; expected a header and rows", path=shown(path))

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


def _check_header(header: list[str], path: Path) -> None:
    double = next((name for name in header if header.count(name) > 1), None)
    if double is not None:
        raise DataError(
            f"column {double!r} is there twice; expected a header with different names",
            path=shown(path),
            line=1,
        )


@contextlib.contextmanager
def _any_field_size() -> Iterator[None]:
    """Lift the csv module's limit of 131072 characters for long documents.

    Which is process-wide.
    """
    before = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(before)
