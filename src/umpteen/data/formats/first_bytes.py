"""What kind of table a file or standard input holds, by its suffix and first bytes."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import sys
import zlib
from pathlib import Path
from typing import Any

from umpteen.data.formats.delimited_table import find_delimiter
from umpteen.data.formats.json_table import is_json
from umpteen.data.formats.lines import GZIP_MAGIC, STDIN, open_bytes
from umpteen.data.formats.table_columns import LONG_TEXT_NAMES, TITLE_NAMES
from umpteen.data.formats.table_options import TableOptions

HEAD_BYTES = 4096
MAX_NAME = 64
"""Characters; a longer first line is a text, not a name of a column."""
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".json": "jsonl",
            ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip


def peek(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked; standard input keeps them for the next reader."""
    if path != STDIN:
        with open_bytes(path) as stream:
            return stream.read(HEAD_BYTES)
    buffer: Any = sys.stdin.buffer
    if hasattr(buffer, "peek"):
        raw: bytes = buffer.peek(HEAD_BYTES)[:HEAD_BYTES]
    else:
        place = buffer.seek(0, io.SEEK_CUR)
        raw = buffer.read(HEAD_BYTES)
        buffer.seek(place)
    if raw.startswith(GZIP_MAGIC):
        with contextlib.suppress(zlib.error):  # broken data is found, and named, when it is read
            return zlib.decompressobj(wbits=31).decompress(raw)
    return raw


def find_table_format(path: Path, options: TableOptions) -> str:
    """Return csv, tsv, jsonl, parquet or lines.

    Args:
        path: A file, or ``-``.
        options: What the user says about the table; a column makes lines a table.
    """
    head = peek(path)
    if head.startswith(b"PAR1"):
        return "parquet"
    text = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(head)
    named = next((SUFFIXES[each] for each in reversed(path.suffixes) if each in SUFFIXES), None)
    if is_json(text):
        return "jsonl"
    if named in ("csv", "tsv"):
        return named
    if options.given():
        return "csv"
    return _delimited(text) or "lines"


def _delimited(text: str) -> str | None:
    """Return csv or tsv if the first line is a header with a usual name for texts."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return None
    mark = find_delimiter(lines[:-1] or lines, TableOptions(), ",")
    try:
        names: list[str] = next(csv.reader(io.StringIO(lines[0]), delimiter=mark), [])
    except csv.Error:
        return None
    usual = {"text", "texts", *TITLE_NAMES, *LONG_TEXT_NAMES}
    short = max(map(len, names), default=0) <= MAX_NAME
    if short and len(names) > 1 and any(name.strip().lower() in usual for name in names):
        return "tsv" if mark == "\t" else "csv"
    return None
