"""One csv or tsv file as a table: its delimiter found, its rows read once, as a stream."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from umpteen.data.formats.lines import read_lines, shown
from umpteen.data.formats.table_columns import ID_NAMES, LABEL_NAMES, LONG_TEXT_NAMES, TITLE_NAMES
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.targets import Unit
from umpteen.display import counted
from umpteen.errors import DataError

DELIMITERS = (",", ";", "\t", "|")
HEAD_LINES = 200
Quoting = Literal[0, 1, 2, 3]
_USUAL = {"text", "texts", *LABEL_NAMES, *LONG_TEXT_NAMES, *TITLE_NAMES, *ID_NAMES}


class DelimitedTable:
    """A file of delimited fields, plain or gzip, or standard input."""

    unit: Unit = "line"

    def __init__(self, path: Path, options: TableOptions, default: str) -> None:
        self.path = path
        lines = (line for _, line in read_lines(path, keep_ends=True))
        head = list(islice(lines, HEAD_LINES))
        if not any(line.strip() for line in head):
            raise DataError("the file is empty; expected a header and rows", path=shown(path))
        declared = _declared(head[0])
        self._skipped = 0 if declared is None else 1
        head = head[self._skipped :]
        self._header = options.header
        self.delimiter = options.delimiter or declared or find_delimiter(head, options, default)
        self.notes: list[str] = []
        if self.delimiter != default and options.delimiter is None:
            self.notes.append(f"fields separated by {self.delimiter!r}")
        self._quoting: Quoting = csv.QUOTE_MINIMAL
        if self.delimiter == "\t" and not _is_quoted(head):
            self._quoting = csv.QUOTE_NONE
            self.notes.append("quotes are part of the text")
        self.head = self._parse_head(head)
        self._lines = chain(head, lines)
        first = self.head[0] if self.head else []
        if options.header:
            self.columns = [name.strip() or f"column {n}" for n, name in enumerate(first, 1)]
        else:
            self.columns = [str(number) for number in range(1, len(first) + 1)]
            self.notes.append("no header, columns named by their number")

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield line number and fields of each row; to be called once.

        Args:
            columns: The columns wanted; all by default.

        Raises:
            DataError: If fields cannot be separated, or a row has another number of them.
        """
        wanted = self.columns if columns is None else list(columns)
        places = [(name, self.columns.index(name)) for name in wanted]
        reader = csv.reader(
            self._lines, delimiter=self.delimiter, strict=True, quoting=self._quoting
        )
        is_header = self._header
        with any_field_size():
            while True:
                number = reader.line_num + 1 + self._skipped
                row = self._next(reader, number)
                if row is None:
                    return
                if is_header:
                    is_header = False
                elif len(row) == len(self.columns):
                    yield number, {name: row[place] for name, place in places}
                elif row:
                    raise DataError(
                        f"the row has {counted(len(row), 'field')}, "
                        f"the header {len(self.columns)}; "
                        "quote a field that holds the delimiter",
                        path=shown(self.path),
                        line=number,
                    )

    def first_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the head that are whole."""
        rows = self.head[1:] if self._header else self.head
        same = [row for row in rows if len(row) == len(self.columns)]
        return [dict(zip(self.columns, row, strict=True)) for row in same]

    def _next(self, reader: Any, number: int) -> list[str] | None:
        try:
            row: list[str] | None = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"the fields cannot be separated ({error}); expected them separated by "
                f'{self.delimiter!r}, quoted with " and a quote inside doubled',
                path=shown(self.path),
                line=number,
            ) from error
        return row

    def _parse_head(self, head: list[str]) -> list[list[str]]:
        found = _parse(head, self.delimiter, self._quoting)
        return found[:-1] if len(head) == HEAD_LINES and len(found) > 2 else found


def find_delimiter(head: list[str], options: TableOptions, default: str) -> str:
    """Return what separates the fields: what finds known columns, then what is consistent."""
    named = {options.label_column, options.id_column, *options.label_columns}
    named |= {name.partition("=")[2] or name for name in options.text_columns}
    best, best_score = default, (-1, -1.0, False, -1)
    for mark in dict.fromkeys((default, *DELIMITERS)):
        rows = _parse(head, mark)
        if not rows or len(rows[0]) < 2:
            continue
        names = [name.strip() for name in rows[0]]
        known = sum(name in named or name.lower() in _USUAL for name in names)
        alike = sum(len(row) == len(names) for row in rows) / len(rows)
        score = (known if options.header else 0, round(alike, 1), mark == default, len(names))
        if score > best_score:
            best, best_score = mark, score
    return best


@contextlib.contextmanager
def any_field_size() -> Iterator[None]:
    """Lift the csv module's limit of 131072 characters for long documents.

    Which is process-wide.
    """
    before = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _is_quoted(head: list[str]) -> bool:
    """Return whether quotes in a file with tabs can be those of quoted fields.

    Many programs write tabs and no quotes: a quote is then part of a text.
    """
    try:
        with any_field_size():
            for _ in csv.reader(head, delimiter="\t", strict=True):
                pass
    except csv.Error as error:
        # A field that ends behind the head is no sign.
        return "unexpected end" in str(error) and len(head) == HEAD_LINES
    return True


def _parse(
    head: Iterable[str], delimiter: str, quoting: Quoting = csv.QUOTE_MINIMAL
) -> list[list[str]]:
    """Return rows as far as they can be parsed."""
    rows: list[list[str]] = []
    with any_field_size(), contextlib.suppress(csv.Error):
        for row in csv.reader(head, delimiter=delimiter, quoting=quoting):
            if row:
                rows.append(row)
    return rows


def _declared(line: str) -> str | None:
    """Return the delimiter that a first line such as ``sep=;`` declares, as spreadsheets do."""
    word = line.rstrip("\r\n")
    return word[4:] if word.lower().startswith("sep=") and len(word) == 5 else None
