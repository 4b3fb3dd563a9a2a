"""Records written as JSON lines, csv or parquet: to a stream, or to a file that is resumable."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from umpteen.data.formats.recognise import WORKBOOKS
from umpteen.data.mapped_strings import MappedStrings
from umpteen.data.parquet_output import kinds_of, write_parquet
from umpteen.errors import DataError
from umpteen.escape import to_json_text
from umpteen.extras import require
from umpteen.files import read_json, sync, write_json
from umpteen.locks import open_locked

SUFFIXES = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".csv": "csv",
            ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip


def output_format(path: str | None, to: str | None) -> str:
    """Return the format to write: as named, or by the file's ending, or jsonl.

    Raises:
        DataError: If parquet is to go to standard output, or the ending is of no such format.
    """
    ending = Path(path).suffix.lower() if path else ""
    if to is None and ending and ending not in SUFFIXES:
        what = "a workbook" if ending in WORKBOOKS else f"a {ending} file"
        raise DataError(
            f"{path}: {what} cannot be written; name a file that ends in .csv, .jsonl or .parquet, "
            "or give the format with --to"
        )
    found = to or SUFFIXES.get(ending, "jsonl")
    if found == "parquet":
        if path is None:
            raise DataError("parquet cannot be written to standard output; name a file with --out")
        require("pyarrow", extra="parquet")
    return found


def separator_for(ids: Sequence[str]) -> str | None:
    """Return a character that no label id has, to join ids with; None where all are taken."""
    packed = MappedStrings.pack(ids)
    return next((mark for mark in (";", "|", "\t") if not packed.has(mark)), None)


class RecordLines:
    """Turns records into lines of JSON or csv.

    Args:
        to: ``jsonl`` or ``csv``.
        columns: The columns of csv, in order.
        separator: Stands between the labels of a csv cell; None writes a JSON list.
    """

    def __init__(self, to: str, columns: Sequence[str], separator: str | None = ";") -> None:
        self._to = to
        self._columns = columns
        self._separator = separator

    def header(self) -> str:
        """Return what a file begins with."""
        return self._row(self._columns) if self._to == "csv" else ""

    def lines(self, records: Sequence[dict[str, Any]]) -> str:
        """Return the lines of some records."""
        if self._to == "csv":
            return "".join(
                self._row([self._cell(name, record) for name in self._columns])
                for record in records
            )
        return "".join(to_json_text(record, default=str) + "\n" for record in records)

    def _cell(self, name: str, record: dict[str, Any]) -> Any:
        value = record.get("labels" if name == "scores" else name)
        if name in ("labels", "scores") and isinstance(value, list):
            each = [label["id" if name == "labels" else "score"] for label in value]
            if self._separator is None:
                return json.dumps(each, ensure_ascii=False)
            return self._separator.join(map(str, each))
        if isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False, default=str)
        return value

    @staticmethod
    def _row(cells: Sequence[Any]) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(cells)
        return out.getvalue()


class RecordFile:
    """A file that grows by whole batches and gets its name when it is complete.

    Until then it is ``FILE.part``, and ``FILE.part.json`` counts the rows and bytes that are
    safe on disk. What a kill has left beyond them is cut off when the file is continued, so that no
    row is lost or written twice.

    Args:
        path: The file.
        to: ``jsonl``, ``csv`` or ``parquet``.
        lines: Makes lines of records; a parquet file is made of JSON lines at the end.
        key: What the rows depend on; a file with another key is not continued.
        resume: Whether to continue what is there.

    Raises:
        DataError: If what is there has another key, or is damaged.
    """

    def __init__(
        self, path: Path, to: str, lines: RecordLines, key: dict[str, Any], *, resume: bool
    ) -> None:
        self.path = path
        self.rows = 0
        """Rows on disk."""
        self.complete = False
        """Whether there is nothing left to do."""
        self._to, self._lines, self._key = to, lines, key
        self._part = path.with_name(f"{path.name}.part")
        self._state = path.with_name(f"{path.name}.part.json")
        self._kinds: dict[str, list[str]] = {}
        self._file: IO[bytes] | None = None
        self._bytes = 0
        if resume and self._part.is_file() and self._state.is_file():
            self._continue()
        elif resume and path.is_file():
            self.complete = True
            self._state.unlink(missing_ok=True)
        else:
            self._begin()

    def append(self, records: Sequence[dict[str, Any]]) -> None:
        """Write some rows; they are safe on disk when it returns."""
        assert self._file is not None
        self._bytes += self._file.write(_encoded(self._lines.lines(records)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows += len(records)
        if self._to == "parquet":
            self._kinds = kinds_of(records, self._kinds)
        self._note()

    def finish(self) -> None:
        """Give the file its name."""
        assert self._file is not None
        self._file.close()
        if self._to == "parquet":
            write_parquet(self._part, self.path, self._kinds)
            self._part.unlink()
        else:
            os.replace(self._part, self.path)
            sync(self.path.parent)
        self._state.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; what is written stays to be continued."""
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        if not self.path.parent.is_dir():
            raise DataError(
                f"{self.path.parent} is no folder; make it first, or name another --out"
            )
        self._open(0)
        assert self._file is not None
        self._bytes = self._file.write(_encoded(self._lines.header()))
        self._file.flush()
        self._note()

    def _open(self, size: int) -> None:
        """Open the part for this process alone, and cut it to a size."""
        busy = DataError(
            f"another process writes {self.path}; wait until it ends, or name another file"
        )
        self._file = open_locked(self._part, busy=busy)
        if not size:
            self._state.unlink(missing_ok=True)  # before the rows that it counts
        self._file.truncate(size)

    def _continue(self) -> None:
        state = read_json(self._state, error=DataError)
        try:
            key, rows, size = state["key"], int(state["rows"]), int(state["bytes"])
            self._kinds = dict(state["kinds"])
            if not isinstance(key, dict) or min(rows, size) < 0:
                raise ValueError(state)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self._state} is damaged; leave --resume out") from error
        if key != self._key:
            name = next((n for n in self._key if key.get(n) != self._key[n]), "a key")
            raise DataError(
                f"{self._part} was written with another {name} ({key.get(name)!r}, now "
                f"{self._key.get(name)!r}); give the same command, or leave --resume out"
            )
        if self._part.stat().st_size < size:
            raise DataError(f"{self._part} is shorter than {self._state} says; leave --resume out")
        self._open(size)
        self.rows, self._bytes = rows, size

    def _note(self) -> None:
        write_json(
            self._state,
            {"key": self._key, "rows": self.rows, "bytes": self._bytes, "kinds": self._kinds},
        )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
