"""Texts one per line, as ``xc-text`` and ``npz`` keep them; labels there are known by their row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from umpteen.data.dataset import Split
from umpteen.data.formats.lines import BYTE_ORDER_MARK, read_lines, write_lines
from umpteen.data.labels import LabelSet, join_texts
from umpteen.display import counted
from umpteen.errors import DataError

# The parts of a data set that a line of text cannot hold.
HOLDS = frozenset({"relevance", "tabs", "filters", "validation"})


def read_texts(path: Path) -> list[str]:
    """Return the lines of a file.

    Raises:
        DataError: If there are none.
    """
    texts = [line for _, line in read_lines(path)]
    if not texts:
        raise DataError("there are no rows; at least one is needed", path=path)
    return texts


def read_label_texts(path: Path) -> LabelSet:
    """Return labels from their texts; the ids are the rows, counted from 0."""
    titles = read_texts(path)
    return LabelSet([str(row) for row in range(len(titles))], titles)


def require_same_length(texts: list[str], text_file: Path, rows: int, label_file: Path) -> None:
    """Raise unless there are as many texts as rows of labels."""
    if len(texts) != rows:
        raise DataError(
            f"{counted(rows, 'row')} of labels, but {text_file.name} has "
            f"{counted(len(texts), 'text')}; there must be one line for each query in both",
            path=label_file,
        )


def write_query_texts(path: Path, split: Split) -> None:
    """Write titles, joined with contents where there are any, one per line."""
    _write(path, split.texts("all"))


def write_label_texts(path: Path, labels: LabelSet) -> None:
    """Write label titles, joined with contents where there are any, one per line."""
    _write(path, join_texts(labels.titles, labels.contents, "all"))


def one_line(text: str) -> str:
    r"""Return a text without line breaks.

    Example:
        >>> one_line("two\r\nlines")
        'two lines'
    """
    if "\n" not in text and "\r" not in text:
        return text
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


def _write(path: Path, texts: Iterable[str]) -> None:
    lines = [one_line(text) for text in texts]
    if lines and lines[0].startswith(BYTE_ORDER_MARK):
        # Readers drop one mark at the start of a file; this one belongs to the text.
        lines[0] = BYTE_ORDER_MARK + lines[0]
    write_lines(path, lines)
