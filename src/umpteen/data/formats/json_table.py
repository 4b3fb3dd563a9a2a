"""JSON objects as a table: one on each line, or all in one array. Read once, as a stream."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from umpteen.data.formats.lines import BYTE_ORDER_MARK, kind, open_bytes, read_objects, shown
from umpteen.data.formats.targets import Unit
from umpteen.errors import DataError

HEAD_RECORDS = 100
CHARACTERS_AT_ONCE = 1 << 16
_BLANK = re.compile(r"[ \t\n\r]*")

Record = dict[str, Any]


class JsonTable:
    """A file of JSON objects, plain or gzip, or standard input."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        records = _stream(path)
        self.unit: Unit = "row" if next(records) else "line"
        head: list[tuple[int, Record]] = list(islice(records, HEAD_RECORDS))
        if len(head) == 1:
            whole = _rows_of_columns(head[0][1]) or _rows_of_one_list(head[0][1])
            self.unit, head = ("row", whole) if whole else (self.unit, head)
        self._records = chain(head, records)
        self._head = [record for _, record in head]
        self.columns = list(dict.fromkeys(name for _, record in head for name in record))

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Record]]:
        """Yield line or row number and object; fields that are not there are left out.

        Args:
            columns: The fields wanted; all by default.

        Raises:
            DataError: If something is not a JSON object.
        """
        for number, record in self._records:
            if columns is None or len(record) <= len(columns):
                yield number, record
            else:
                yield number, {name: record[name] for name in columns if name in record}

    def first_rows(self) -> list[Record]:
        """Return the objects of the head."""
        return self._head


def is_array(path: Path) -> bool:
    """Return whether a file holds one array of objects, not an object on each line."""
    with open_bytes(path) as stream:
        start = stream.read(64)
    return start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def is_json(start: str) -> bool:
    """Return whether a file that begins like this holds JSON objects.

    Example:
        >>> is_json('{"a": 1}'), is_json("[ {"), is_json("[note] to self")
        (True, True, False)
    """
    start = start.removeprefix(BYTE_ORDER_MARK).lstrip()
    return start.startswith("{") or bool(re.match(r"\[\s*(\{|\]|$)", start))


def _holds_columns(record: Record) -> bool:
    """Return whether an object is a whole table by columns, as ``DataFrame.to_json`` writes it."""
    columns = list(record.values())
    return (
        len(columns) > 1
        and all(isinstance(column, dict) and column for column in columns)
        and all(column.keys() == columns[0].keys() for column in columns)
    )


def _rows_of_columns(record: Record) -> list[tuple[int, Record]]:
    """Return the rows of a table by columns; none where an object is something else."""
    if not _holds_columns(record):
        return []
    columns = [column.values() for column in record.values()]
    rows = zip(*columns, strict=True)
    return [(n, dict(zip(record, row, strict=True))) for n, row in enumerate(rows, 1)]


def _rows_of_one_list(record: Record) -> list[tuple[int, Record]]:
    """Return the objects of the only list in an object such as ``{"data": [...]}``."""
    lists = [value for value in record.values() if isinstance(value, list)]
    others = any(isinstance(value, str) for value in record.values())
    if len(lists) != 1 or others or not all(isinstance(row, dict) for row in lists[0]):
        return []
    return list(enumerate(lists[0], 1))


def _stream(path: Path) -> Iterator[Any]:
    """Yield whether the file is an array, then its numbered objects."""
    with open_bytes(path) as stream:
        start: bytes = stream.peek(64)[:64]  # type: ignore[attr-defined]
        is_array = start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        yield is_array
        if is_array:
            yield from _array(path, stream)
        elif start.removeprefix(codecs.BOM_UTF8).lstrip().split(b"\n")[0].strip() == b"{":
            yield 1, _TextBuffer(path, stream).decode(json.JSONDecoder(), 1)  # one object, indented
        else:
            yield from read_objects(path, stream)


def _array(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, Record]]:
    """Yield the objects of an array, with a buffer of one object."""
    decoder = json.JSONDecoder()
    buffer = _TextBuffer(path, stream)
    buffer.take("[")
    number = 0
    if buffer.next_is("]"):
        return
    while True:
        number += 1
        value = buffer.decode(decoder, number)
        if not isinstance(value, dict):
            raise DataError(
                f"holds {kind(value)}; expected a JSON object", path=shown(path), row=number
            )
        yield number, value
        if buffer.next_is("]"):
            return
        buffer.take(",", number)


class _TextBuffer:
    """Characters of a stream, decoded as they are needed."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._ended = False

    def decode(self, decoder: json.JSONDecoder, number: int) -> Any:
        """Return the value that comes next."""
        size = CHARACTERS_AT_ONCE
        while True:
            self._skip_blanks()
            try:
                value, end = decoder.raw_decode(self._text)
                if "\\u" in self._text[:end]:
                    json.dumps(value, ensure_ascii=False).encode("utf-8")
                # A number that ends where the buffer does may go on.
                if end < len(self._text) or self._ended:
                    self._text = self._text[end:]
                    return value
            except UnicodeEncodeError as error:
                raise self._error("a \\u escape gives half of a surrogate pair", number) from error
            except (ValueError, RecursionError) as error:
                if self._ended or isinstance(error, RecursionError):
                    raise self._error(f"is not JSON ({error})", number) from error
            # Twice as much each time, so that a long object is not parsed again and again.
            self._more(size, number)
            size *= 2

    def next_is(self, character: str) -> bool:
        """Return whether this character comes next."""
        self._skip_blanks()
        return self._text.startswith(character)

    def take(self, character: str, number: int = 1) -> None:
        """Go past a character that must come next."""
        if not self.next_is(character):
            found = repr(self._text[:10]) if self._text else "the end of the file"
            raise self._error(f"expected {character!r} after the object, found {found}", number)
        self._text = self._text[1:]

    def _skip_blanks(self) -> None:
        while True:
            self._text = self._text[_BLANK.match(self._text).end() :]  # type: ignore[union-attr]
            if self._text or self._ended:
                return
            self._more(CHARACTERS_AT_ONCE, 0)

    def _more(self, size: int, number: int) -> None:
        raw = self._stream.read(size)
        self._ended = not raw
        try:
            self._text += self._decode.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            raise self._error("is not UTF-8; save the file as UTF-8", number) from error

    def _error(self, message: str, number: int) -> DataError:
        return DataError(message, path=shown(self._path), row=max(1, number))
