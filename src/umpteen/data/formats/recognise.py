"""Which format a folder or file is in, or what it is if none fits. Knows no format by name."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from umpteen.data.dataset import Dataset
from umpteen.data.formats.delimited_table import find_delimiter
from umpteen.data.formats.json_table import is_json
from umpteen.data.formats.lines import (
    GZIP_MAGIC,
    NOT_UTF16,
    STDIN,
    UTF16_MARKS,
    open_bytes,
    read_lines,
)
from umpteen.data.formats.table_columns import LONG_TEXT_NAMES, TITLE_NAMES
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.targets import Unit
from umpteen.errors import DataError
from umpteen.registry import resolve

ON_STDIN = ("csv", "tsv", "jsonl")
HEAD_BYTES = 4096
MAX_NAME = 64
"""Characters; a longer first line is a text, not a name of a column."""
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".json": "jsonl",
            ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}  # fmt: skip
TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".json", ".csv.gz", ".tsv.gz", ".jsonl.gz")
WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods")
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst")
MAX_NAMED = 6
# "1,5 3:0.2 7:1" (labels, then feature:value), and the first line "texts features labels".
_FEATURES = re.compile(r"(?:-?[\d.]+(?:,[\d.]+)*\s+)?\d+:-?[\d.eE+-]+(?:\s+\d+:\S+)*\s*")
_SIZES = re.compile(r"\d+ \d+ \d+\s*")


class Format(Protocol):
    """What a row of FORMATS leads to: a module or an object with these parts."""

    HOLDS: frozenset[str]
    """Which of ``features.ALL`` survive writing and reading."""
    UNIT: Unit
    """Whether row i of a split is line i + 1 of its file, or only row i + 1."""

    def sniff(self, path: Path) -> bool:
        """Return whether the path looks like this format.

        Looks at names and first bytes, never raises.
        """

    def read(self, path: Path) -> Dataset:
        """Read the data set."""

    def write(self, dataset: Dataset, folder: Path) -> None:
        """Write the data set into a folder that exists and is empty."""

    def files(self, path: Path) -> dict[str, Path]:
        """Return the file that holds each split's texts."""


def recognise(
    path: str | Path,
    name: str | None,
    table: Mapping[str, str],
    options: TableOptions | None = None,
) -> tuple[str, Format]:
    """Find the format of a path.

    Args:
        path: A folder, a file, or ``-``.
        name: The format, if it is known.
        table: Names to formats.
        options: What the user says about columns; a file with such options is a table.

    Returns:
        Name and format.

    Raises:
        DataError: If the path is missing, or no format or several formats fit.
        ConfigError: If the name is unknown.
    """
    path = Path(path)
    if path == STDIN:
        name = name or find_table_format(path, options or TableOptions())
        name = "jsonl" if name == "lines" else name
        if name not in ON_STDIN:
            raise DataError(
                f"standard input is read as {', '.join(ON_STDIN)}, not as {name}; name the file"
            )
    if path != STDIN and not path.exists():
        raise DataError(f"{path} does not exist; expected a folder or file with a data set")
    if name is not None:
        return name, resolve(table, name, kind="format")
    known = {each: resolve(table, each, kind="format") for each in table}
    fitting = [each for each, part in known.items() if part.sniff(path)]
    # A special case, such as annif-jsonl, goes before the format it narrows.
    wider = {getattr(known[each], "NARROWS", None) for each in fitting}
    fitting = [each for each in fitting if each not in wider]
    if len(fitting) > 1:
        raise DataError(
            f"{path} could be {' or '.join(fitting)}; choose one with the format name "
            "(--format on the command line)"
        )
    if not fitting and options is not None and options.given() and path.is_file():
        fitting = [find_table_format(path, options)]
    if not fitting:
        raise DataError(describe_unreadable(path, table))
    return fitting[0], known[fitting[0]]


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
    """Return csv, tsv, jsonl, parquet or lines."""
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


def describe_unreadable(path: Path, formats: Iterable[str]) -> str:
    """Return the message for a path that no format fits."""
    files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    vectors = next((file for file in files if holds_features(file)), None)
    if vectors is not None:
        return (
            f"{vectors} holds numbers of features (SVMlight, or the bag of words of the extreme "
            "classification repository), not texts. umpteen reads texts: use the raw texts of the "
            "data set, such as trn_X.txt with trn_X_Y.txt and Y.txt"
        )
    if (packed := packed_kind(path)) is not None:
        return f"{path} {packed}"
    known = ", ".join(formats)
    if not path.is_dir():
        with contextlib.suppress(DataError):
            head = peek(path)
            if not head.strip():
                return f"{path} is empty; expected labelled texts"
            if head.startswith(UTF16_MARKS):
                return f"{path}: {NOT_UTF16}"
        return f"{path} is a file in none of the known formats ({known}). Name one with --format"
    tables = [file for file in files if file.name.endswith(TABLES)]
    if len(tables) == 1:
        return f"{path} has no file named train or test. Name the file itself: {tables[0]}"
    named = ", ".join(file.name for file in files[:MAX_NAMED]) or "nothing"
    more = f" and {len(files) - MAX_NAMED} more" if len(files) > MAX_NAMED else ""
    return (
        f"{path} is a folder in none of the known formats: found {named}{more}; looked for "
        "train.csv, train.tsv, train.jsonl, train.parquet, train.txt (fastText), trn.json, "
        "trn_X.txt or Y.trn.npz, plain or gzip"
    )


def packed_kind(path: Path) -> str | None:
    """Return what a workbook or archive is and what to do; None for other files."""
    if path.suffix.lower() in WORKBOOKS:
        return "is a workbook of a spreadsheet; save the sheet as CSV (UTF-8)"
    if path.suffix.lower() in ARCHIVES:
        return "is an archive; unpack it and name the file or folder in it"
    return None


def holds_features(file: Path) -> bool:
    """Return whether the first lines of a file are sparse vectors without text."""
    try:
        lines = [line for _, line in islice(read_lines(file), 4) if line.strip()]
    except DataError:
        return False
    if lines and _SIZES.fullmatch(lines[0]):
        lines = lines[1:]
    return bool(lines) and all(_FEATURES.fullmatch(line) for line in lines)
