"""Rows of a file in batches, with bounded memory: for texts to predict, labels are not needed.

Reads what training reads (csv, tsv, parquet, jsonl, JSON arrays, fastText), plain lines, and all of
these but parquet from standard input. Nothing is kept but one batch and the head of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from umpteen.data.formats.delimited_table import DelimitedTable
from umpteen.data.formats.fasttext import PREFIX, FastTextTable
from umpteen.data.formats.json_table import JsonTable
from umpteen.data.formats.lines import STDIN, read_lines, shown
from umpteen.data.formats.recognise import find_table_format, packed_kind, peek
from umpteen.data.formats.table_columns import Columns
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.table_rows import Table, take_id, take_text
from umpteen.data.formats.tables import pick_columns
from umpteen.data.formats.targets import Unit
from umpteen.data.labels import join_texts
from umpteen.errors import DataError

ROWS_AT_ONCE = 1024
ROW_FORMATS = ("csv", "tsv", "jsonl", "parquet", "fasttext", "lines")


@dataclass(frozen=True)
class RowBatch:
    """Some rows, one entry a row in every list."""

    numbers: list[int]
    """Line of the file, or row where it has no lines; from 1."""
    titles: list[str]
    contents: list[str] | None
    ids: list[str] | None
    columns: dict[str, list[Any]]
    """The values of every other column as they were read; None where a row has none."""

    def __len__(self) -> int:
        return len(self.titles)

    def texts(self, which: str = "all") -> list[str]:
        """Return what the encoder reads of each row: ``"title"``, or ``"all"`` with content."""
        return join_texts(self.titles, self.contents, which)


class RowReader:
    """A file of texts, opened; ``batches`` can be called once.

    Attributes:
        format: csv, tsv, jsonl, parquet, fasttext, or lines.
        columns: The columns of text and id that were chosen.
        others: The other columns, in the order of the file.
        note: How the file is read; empty where no other reading is possible.
        table: The file; its rows can be read once.
    """

    def __init__(self, table: Table, format: str, options: TableOptions) -> None:
        self.format = format
        self.path = table.path
        self.columns: Columns = pick_columns(table, options, need_labels=False)
        read = {*self.columns.title, *self.columns.content, self.columns.id}
        self.others = [name for name in dict.fromkeys(table.columns) if name not in read]
        self.table = table
        said = [*table.notes, replace(self.columns, labels=None).describe()]
        guessed = table.notes or self.columns.guessed
        self.note = f"{shown(table.path)}: {'; '.join(said)}" if guessed else ""

    def batches(self, size: int = ROWS_AT_ONCE, *, start: int = 0) -> Iterator[RowBatch]:
        """Yield all rows.

        Args:
            size: Rows in a batch, at most.
            start: Rows to leave out at the beginning, to continue where a run ended.

        Raises:
            DataError: With file and line, if a row is broken.
        """
        chosen = self.columns
        wanted = list(dict.fromkeys([*chosen.title, *chosen.content, *self.others]))
        if chosen.id is not None:
            wanted.append(chosen.id)
        rows = islice(self.table.rows(wanted), start, None)
        while block := list(islice(rows, size)):
            yield self._batch(block)

    def _batch(self, block: list[tuple[int, dict[str, Any]]]) -> RowBatch:
        chosen = self.columns
        titles, contents, ids = [], [], []
        for number, record in block:
            try:
                titles.append(take_text(record, chosen.title))
                contents.append(take_text(record, chosen.content) if chosen.content else "")
                if chosen.id is not None:
                    ids.append(take_id(record, chosen.id))
            except DataError as error:
                place: dict[str, Any] = {self.table.unit: number}
                raise DataError(str(error), path=shown(self.path), **place) from error
        return RowBatch(
            [number for number, _ in block],
            titles,
            contents if chosen.content else None,
            ids if chosen.id is not None else None,
            {name: [record.get(name) for _, record in block] for name in self.others},
        )


class LineTable:
    """Texts one per line."""

    unit: Unit = "line"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = ["text"]
        self.notes: list[str] = []

    def rows(self, columns: Any = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield line number and text of each line."""
        return ((number, {"text": line}) for number, line in read_lines(self.path))

    def first_rows(self) -> list[dict[str, Any]]:
        """Return nothing: lines have one column."""
        return []


def _find_format(path: Path, options: TableOptions) -> str:
    """Return one of ``ROW_FORMATS``."""
    found = find_table_format(path, options)
    marked = peek(path).lstrip().startswith(PREFIX.encode())
    return "fasttext" if found == "lines" and marked else found


def open_rows(
    path: str | Path, options: TableOptions | None = None, *, format: str | None = None
) -> RowReader:
    """Open a file of texts, or ``-`` for standard input.

    Args:
        path: The file, plain or gzip.
        options: Columns, delimiter and header; found in the file where they are left out.
        format: One of ``ROW_FORMATS``; found by suffix and first bytes if left out.

    Returns:
        The reader, with its columns chosen; no row has been read beyond the head.

    Raises:
        DataError: If the file is missing or empty, is not of the format, or has no text column.
    """
    path, options = Path(path), options or TableOptions()
    if path != STDIN and not path.is_file():
        what = "is a folder; name a file in it" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {what}")
    if format is None and (packed := packed_kind(path)) is not None:
        raise DataError(f"{path} {packed}")
    if format is not None and format not in ROW_FORMATS:
        raise DataError(f"format {format!r} is not one of {', '.join(ROW_FORMATS)}")
    found = format or _find_format(path, options)
    if found == "parquet":
        if path == STDIN:
            raise DataError("parquet cannot be read from standard input; name the file")
        from umpteen.data.formats import parquet

        return RowReader(parquet.open_table(path), found, options)
    if found == "jsonl":
        return RowReader(JsonTable(path), found, options)
    if found == "fasttext":
        return RowReader(FastTextTable(path), found, TableOptions())
    if found == "lines":
        return RowReader(LineTable(path), found, TableOptions())
    return RowReader(DelimitedTable(path, options, "\t" if found == "tsv" else ","), found, options)
