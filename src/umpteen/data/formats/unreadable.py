"""What a path is that no format fits, in one sentence with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from umpteen.data.formats.lines import read_lines
from umpteen.errors import DataError

TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".json", ".csv.gz", ".tsv.gz", ".jsonl.gz")
WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods")
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst")
MAX_NAMED = 6
# "1,5 3:0.2 7:1" (labels, then feature:value), and the first line "texts features labels".
_FEATURES = re.compile(r"(?:-?[\d.]+(?:,[\d.]+)*\s+)?\d+:-?[\d.eE+-]+(?:\s+\d+:\S+)*\s*")
_SIZES = re.compile(r"\d+ \d+ \d+\s*")


def describe_unreadable(path: Path, formats: Iterable[str]) -> str:
    """Return the message for a path that no format fits.

    Args:
        path: A folder or a file.
        formats: The names of the formats.
    """
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
