"""Rows of Annif's CSV files: read with their line numbers, and written."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from umpteen.data.formats.lines import read_lines, shown
from umpteen.display import counted
from umpteen.errors import DataError

MAX_CHARACTERS = 1 << 30
"""Of a field; the csv module reads 131,072 by default."""


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file by column, with the line each one begins in.

    Raises:
        DataError: With file and line, if fields cannot be separated or their number differs.
    """
    reader = csv.reader((line for _, line in read_lines(path, keep_ends=True)), strict=True)
    header: list[str] | None = None
    before = csv.field_size_limit(MAX_CHARACTERS)  # process-wide
    try:
        while True:
            number = reader.line_num + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise DataError(
                    f"the fields cannot be separated ({error}); expected commas, and quotes "
                    "inside a quoted field doubled",
                    path=shown(path),
                    line=number,
                ) from error
            if row is None:
                break
            if header is None:
                header = row
            elif len(row) == len(header):
                yield number, dict(zip(header, row, strict=True))
            elif row:
                raise DataError(
                    f"the row has {counted(len(row), 'field')}, the header {len(header)}; quote a "
                    "field that holds a comma",
                    path=shown(path),
                    line=number,
                )
    finally:
        csv.field_size_limit(before)


def csv_header(path: Path) -> list[str]:
    """Return the columns of a CSV file; none if it cannot be read."""
    try:
        first = next((line for _, line in read_lines(path)), "")
        return next(csv.reader([first], strict=True), [])
    except (DataError, csv.Error):
        return []


def csv_line(fields: Iterable[str]) -> str:
    """Return one row without its line end."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerow(fields)  # so that \r is quoted, too
    return buffer.getvalue().removesuffix("\r\n")
