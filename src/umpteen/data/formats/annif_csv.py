r"""Annif's CSV rows with their line numbers, and label ids as URIs in angle brackets.

Characters that cannot stand in a URI are written as in N-Triples, ``\u0020`` for a space. Any id
can be written and is read again unchanged.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from umpteen.data.formats.lines import read_lines, shown
from umpteen.display import counted
from umpteen.errors import DataError

MAX_CHARACTERS = 1 << 30
"""Of a field; the csv module reads 131,072 by default."""
_FORBIDDEN = re.compile(r"[\x00-\x20<>\"{}|^`\\\x7f-\xa0]|\s|\ufeff")
_ESCAPED = re.compile(r"\\u([0-9A-Fa-f]{4})")


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


def written_uri(label_id: str) -> str:
    r"""Return an id in angle brackets.

    Example:
        >>> written_uri("http://example.org/a"), written_uri("two words")
        ('<http://example.org/a>', '<two\\u0020words>')
    """
    return f"<{_FORBIDDEN.sub(lambda found: f'{chr(92)}u{ord(found[0]):04x}', label_id)}>"


def clean_uri(written: str) -> str:
    r"""Return the id of a URI with or without angle brackets; empty if there is none.

    Example:
        >>> clean_uri(" <two\\u0020words> "), clean_uri("http://example.org/a")
        ('two words', 'http://example.org/a')
    """
    written = written.strip()
    if written.startswith("<") and written.endswith(">"):
        written = written[1:-1]
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), written)


def split_uris(cell: str) -> list[str]:
    """Return the ids of a cell with URIs separated by blanks; each one once."""
    return list(dict.fromkeys(filter(None, map(clean_uri, cell.split()))))


def looks_like_uris(cell: str) -> bool:
    """Return whether a cell holds nothing but URIs, at least one of them in angle brackets."""
    words = cell.split()
    return any(word.startswith("<") and word.endswith(">") for word in words) and all(
        (word.startswith("<") and word.endswith(">")) or "://" in word for word in words
    )
