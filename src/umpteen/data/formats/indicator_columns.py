"""Tables with several columns of labels, read as one: columns of 0 and 1, or one label a cell."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from umpteen.data.formats.label_separators import is_missing, label_values
from umpteen.data.formats.lines import shown
from umpteen.data.formats.table_columns import ID_NAMES, LABEL_NAMES, find_column
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.table_rows import NumberedRow, Record, Table
from umpteen.data.formats.targets import Unit
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError

LABELS = "labels"
"""What the column of labels is called that takes the place of the columns of 0 and 1."""
HEAD_ROWS = 100
"""Rows that show whether a column holds only 0 and 1."""
SHOWN_NAMES = 6
_NUMBERED = re.compile(rf"(?i)(?:{'|'.join(LABEL_NAMES)})[ _.-]?\d+")
"""Columns that are called label1, tag_2 and so on."""
_WORDS = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True}
VALUES: dict[Any, bool] = {
    0: False,
    1: True,
    **_WORDS,
    **{word.title(): value for word, value in _WORDS.items()},
    **{word.upper(): value for word, value in _WORDS.items()},
}
"""What a cell may hold; a missing one is 0."""


class LabelColumnsTable(ABC):
    """A table whose several columns of labels are one column."""

    def __init__(self, table: Table, names: Sequence[str], *, guessed: bool) -> None:
        self.path: Path = table.path
        self.unit: Unit = table.unit
        self.names = tuple(names)
        taken = set(names)
        self.columns = [name for name in table.columns if name not in taken]
        while LABELS in self.columns:  # a column of this name that is no label, as the user said
            self.columns.remove(LABELS)
        self.columns.append(LABELS)
        self.notes = table.notes
        self.guessed = guessed
        self._table = table

    @property
    @abstractmethod
    def reading(self) -> str:
        """How the labels are read, in words."""

    @abstractmethod
    def labels_of(self, record: Record, number: int) -> list[Any]:
        """Return the labels of a row."""

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[NumberedRow]:
        """Yield number and values of each row; ``labels`` lists its labels.

        Args:
            columns: The columns wanted; all by default.

        Raises:
            DataError: If a cell cannot be read.
        """
        others = [name for name in columns or self.columns if name != LABELS]
        for number, record in self._table.rows([*others, *self.names]):
            kept = {name: record[name] for name in others if name in record}
            yield number, {**kept, LABELS: self.labels_of(record, number)}

    def first_rows(self) -> Iterator[Record]:
        """Yield the rows from the first on; to be called instead of ``rows``."""
        return (record for _, record in self.rows())


class LabelCellsTable(LabelColumnsTable):
    """A table with one label in a cell and several such columns, as ``label1`` and ``label2``."""

    @property
    def reading(self) -> str:
        """How the labels are read, in words."""
        return f"labels from {len(self.names)} columns, one in a cell ({_some(self.names)})"

    def labels_of(self, record: Record, number: int) -> list[Any]:
        """Return the cells that are not empty."""
        return [value for name in self.names for value in label_values(record.get(name), None)]


class IndicatorTable(LabelColumnsTable):
    """A table whose columns of 0 and 1 are one column of labels; their names are the labels."""

    @property
    def reading(self) -> str:
        """How the labels are read, in words."""
        return f"labels from {len(self.names)} columns of 0 and 1 ({_some(self.names)})"

    def labels_of(self, record: Record, number: int) -> list[Any]:
        """Return the columns that hold 1.

        Raises:
            DataError: If a cell holds something else than 0 and 1.
        """
        try:
            return [name for name in self.names if VALUES[record.get(name, 0)]]
        except (KeyError, TypeError):  # a cell that is missing, or no 0 or 1
            return [name for name in self.names if self._holds(record.get(name), number, name)]

    def _holds(self, cell: Any, number: int, name: str) -> bool:
        if is_missing(cell) or (isinstance(cell, str) and not cell.strip()):
            return False
        value = VALUES.get(cell.strip() if isinstance(cell, str) else cell)
        if value is None:
            place: dict[str, Any] = {self.unit: number}
            raise DataError(
                f"holds {str(cell)[:40]!r}; expected 0 or 1, as in the other columns of labels. "
                "Name the columns of labels with --label-column, once for each",
                path=shown(self.path),
                column=name,
                **place,
            )
        return value


def with_label_columns(tables: Mapping[str, Table], options: TableOptions) -> dict[str, Table]:
    """Return tables in which several columns of labels are one.

    Args:
        tables: The table of each split.
        options: Names the columns, or no column of labels: then columns are looked for where no
            column has a name that is known for labels.

    Returns:
        The same tables where there are no such columns.

    Raises:
        DataError: If a column that the user named is missing.
    """
    return {name: _with_labels(table, options) for name, table in tables.items()}


def indicator_labels(tables: Iterable[Table]) -> LabelSet | None:
    """Return the columns as labels where all tables have them; a column without a 1 is a label."""
    found = list(tables)
    if not all(isinstance(table, IndicatorTable) for table in found):
        return None
    every = (name for table in found if isinstance(table, IndicatorTable) for name in table.names)
    names = list(dict.fromkeys(every))
    return LabelSet(names, names) if names else None


def _with_labels(table: Table, options: TableOptions) -> Table:
    if options.label_columns:
        try:
            named = [
                find_column(table.columns, name, "--label-column") for name in options.label_columns
            ]
        except DataError as error:
            raise DataError(str(error), path=shown(table.path)) from error
        kind = LabelCellsTable if _hold_labels(table, named) else IndicatorTable
        return kind(table, named, guessed=False)
    named_so = {name.lower() for name in table.columns} & set(LABEL_NAMES)
    if options.label_column is not None or named_so or not options.header:
        return table
    names = _find(table, options)
    if names:
        return IndicatorTable(table, names, guessed=True)
    numbered = [name for name in table.columns if _NUMBERED.fullmatch(name)]
    several = len(numbered) > 1 and _hold_labels(table, numbered)
    return LabelCellsTable(table, numbered, guessed=True) if several else table


def _hold_labels(table: Table, names: Sequence[str]) -> bool:
    """Return whether the first cells are labels: each column has one that is neither 0 nor 1."""
    head: list[Record] = list(islice(table.first_rows(), HEAD_ROWS))
    return all(any(_value(row.get(name)) is None for row in head) for name in names)


def _find(table: Table, options: TableOptions) -> list[str]:
    """Return the columns whose first cells are all 0 or 1, where there are several of them."""
    head: list[dict[str, Any]] = list(islice(table.first_rows(), HEAD_ROWS))
    texts = {name.partition("=")[2] or name for name in options.text_columns}
    left_out = {*ID_NAMES, str(options.id_column).lower(), *(name.lower() for name in texts)}
    columns = [name for name in table.columns if name.lower() not in left_out]
    cells = {name: [_value(row.get(name)) for row in head] for name in columns}
    found = [name for name in columns if head and None not in cells[name]]
    held = any(any(cells[name]) for name in found)
    return found if len(found) > 1 and held else []


def _value(cell: Any) -> bool | None:
    """Return what a cell stands for; None where it is neither 0 nor 1 nor missing."""
    if is_missing(cell) or (isinstance(cell, str) and not cell.strip()):
        return False
    try:
        return VALUES.get(cell.strip() if isinstance(cell, str) else cell)
    except TypeError:  # a list
        return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(name[:40] for name in names[:SHOWN_NAMES]) + more
