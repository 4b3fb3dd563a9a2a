"""The ``fasttext`` format: a text per line, its labels in it as ``__label__NAME``. Read only.

For data made for fastText. A folder has ``train.txt`` and, as you like, ``valid.txt`` and
``test.txt``; a single file is a train split. Labels may stand anywhere in the line. Choose
``jsonl`` for labels with blanks in their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.lines import read_lines
from umpteen.data.formats.table_options import NO_SEPARATOR, TableOptions
from umpteen.data.formats.tables import read_tables
from umpteen.data.formats.targets import Unit
from umpteen.errors import DataError

PREFIX = "__label__"
UNIT: Unit = "line"
FILES = {
    "train": ("train.txt",),
    "validation": ("valid.txt", "validation.txt", "dev.txt", "val.txt"),
    "test": ("test.txt",),
}
HEAD_LINES = 10


class FastTextTable:
    """A file of lines with labels in them."""

    unit: Unit = "line"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = ["text", "labels"]
        self.notes: list[str] = []

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield line number, text and labels of each line; lines without words are left out."""
        for number, line in read_lines(self.path):
            words = line.split()
            if not words:
                continue
            labels = [word.removeprefix(PREFIX) for word in words if word.startswith(PREFIX)]
            text = " ".join(word for word in words if not word.startswith(PREFIX))
            yield number, {"text": text, "labels": labels}

    def first_rows(self) -> list[dict[str, Any]]:
        """Return nothing: its columns are known."""
        return []


def sniff(path: Path) -> bool:
    """Return whether one of the first lines has a label in it."""
    found = shared.find(path, FILES["train"] + FILES["test"]) if path.is_dir() else [path]
    try:
        lines = [line for file in found[:1] for _, line in islice(read_lines(file), HEAD_LINES)]
    except DataError:
        return False
    return any(word.startswith(PREFIX) for line in lines for word in line.split()[:1])


def read(path: Path) -> Dataset:
    """Read a folder or a file.

    Args:
        path: What to read.

    Returns:
        The data set, with labels in order of first appearance.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    tables = {name: FastTextTable(file) for name, file in files(path).items()}
    return read_tables(path, tables, None, TableOptions(separator=NO_SEPARATOR))


def files(path: Path) -> dict[str, Path]:
    """Return the file of each split."""
    return shared.find_splits(path, FILES)
