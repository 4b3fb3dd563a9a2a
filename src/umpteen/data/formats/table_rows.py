"""Rows of a table taken apart: texts and ids at once, labels when their separator is known."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from umpteen.data.formats.label_separators import is_missing, label_values, split_numbers
from umpteen.data.formats.lines import kind
from umpteen.data.formats.records import LabelNames, QueryRecords, as_id
from umpteen.data.formats.table_columns import Columns
from umpteen.data.formats.targets import ROWS_IN_MEMORY, TargetRows, Unit
from umpteen.data.growing_array import GrowingArray, forget
from umpteen.data.string_column import StringColumn
from umpteen.errors import DataError

LABELS_FOUND_AT_ONCE = 1 << 14
"""Rows whose labels are found in one search where there are too many labels for a dict."""
Record = dict[str, Any]
NumberedRow = tuple[int, Record]


class Table(Protocol):
    """A file with rows, opened: its columns are known, its rows can be read once."""

    path: Path
    unit: Unit
    """What the numbers of rows count."""
    columns: list[str]
    notes: list[str]
    """What was found about the file itself and may be otherwise than meant."""

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[NumberedRow]:
        """Yield number and values of each row; a field that is not there may be left out."""

    def first_rows(self) -> Iterable[Record]:
        """Return some of the first rows; ``rows`` yields them too."""


class SplitRows:
    """The rows of one split while its table is read.

    Labels in lists become label rows at once. From the first cell with text on, the cells are kept
    until the separator of the whole data set is known; records never are.
    """

    def __init__(self, table: Table, columns: Columns, names: LabelNames) -> None:
        self.cells = LabelCells()
        """Those that wait for the separator."""
        self._table = table
        self._columns = columns
        self._names = names
        self._targets = TargetRows(table.path, unit=table.unit, column=columns.labels)
        self._titles, self._contents, self._ids = StringColumn(), StringColumn(), StringColumn()
        self._relevances: list[Any] = []

    def read(self, *, wait: bool) -> bool:
        """Read all rows of the table.

        Args:
            wait: Whether an earlier split has cells that wait: the order of labels is theirs first.

        Returns:
            Whether cells wait for the separator.

        Raises:
            DataError: With file and line of the first row that is wrong.
        """
        columns = self._columns
        label_column, relevance_column = str(columns.labels), columns.relevance
        rows = self._table.rows(columns.used())
        if self._names.in_blocks:
            rows = self._expecting(rows, label_column)
        for number, record in rows:
            try:
                self._titles.append(take_text(record, columns.title))
                if columns.content:
                    self._contents.append(take_text(record, columns.content))
                if columns.id is not None:
                    self._ids.append(take_id(record, columns.id))
            except DataError as error:
                raise self._targets.error(str(error), number) from error
            cell = record.get(label_column)
            relevance = None if relevance_column is None else record.get(relevance_column)
            if wait or isinstance(cell, str) or isinstance(relevance, str):
                wait = True
                self.cells.append(cell, number)
                if relevance_column is not None:
                    self._relevances.append(relevance)
            else:
                self._add(number, cell, relevance, None)
        return wait

    def finish(self, separator: str | None) -> QueryRecords:
        """Take the waiting cells apart and return the queries.

        Args:
            separator: Stands between labels in text; None if a cell is one label.

        Raises:
            DataError: With file, line and column of the first cell that is wrong.
        """
        relevances = repeat(None) if self._columns.relevance is None else self._relevances
        for (number, cell), relevance in zip(self.cells.numbered(), relevances, strict=False):
            self._add(number, cell, relevance, separator)
        contents = self._contents.finish() if self._contents.has_text else None
        ids = self._ids.finish() if self._columns.id is not None else None
        return QueryRecords(self._titles.finish(), contents, ids, self._targets)

    def _expecting(self, rows: Iterator[NumberedRow], column: str) -> Iterator[NumberedRow]:
        """Yield rows, with their labels found block by block."""
        while block := list(islice(rows, LABELS_FOUND_AT_ONCE)):
            self._names.expect(record.get(column) for _, record in block)
            yield from block

    def _add(self, number: int, cell: Any, relevance: Any, separator: str | None) -> None:
        column, values = self._columns.labels, None
        try:
            found = self._names(label_values(cell, separator))
            column = self._columns.relevance
            if not is_missing(relevance):
                values = split_numbers(relevance, separator)
        except DataError as error:
            raise self._targets.error(str(error), number, column) from error
        self._targets.add(found, values, number)


class LabelCells:
    """Cells of a label column, with the numbers of their rows; text in a file where it is much."""

    def __init__(self) -> None:
        self._column, self._others = StringColumn(), dict[int, Any]()
        self._numbers, self._stored = array("q"), GrowingArray(np.int64)
        self._texts: Sequence[str] = ()
        self.all_text = True
        """Whether every cell is text."""
        self.whole = False
        """Whether 1.0 stands for 1; set once all cells are known."""

    def append(self, cell: Any, number: int) -> None:
        """Add a cell and the number of its row."""
        if not isinstance(cell, str):
            self.all_text = False
            if cell is not None:  # an empty cell is read in the same way
                self._others[self._stored.length + len(self._numbers)] = cell
        self._column.append(cell if isinstance(cell, str) else "")
        self._numbers.append(number)
        if len(self._numbers) >= ROWS_IN_MEMORY:
            self._store()

    def texts(self) -> Sequence[str]:
        """Return the cells with text, empty ones included; nothing may be added afterwards."""
        self._texts = self._texts or self._column.finish()
        return self._texts

    def numbered(self) -> Iterator[tuple[int, Any]]:
        """Yield number and cell of each row."""
        self._store()
        texts, numbers = iter(self.texts()), self._stored.finish()
        for start in range(0, len(numbers), ROWS_IN_MEMORY):
            some = numbers[start : start + ROWS_IN_MEMORY].tolist()
            forget(numbers)
            for place, (number, text) in enumerate(zip(some, texts, strict=False), start):
                if self.whole:
                    text = text.strip().removesuffix(".0")
                yield number, self._others.get(place, text)

    def _store(self) -> None:
        self._stored.extend(np.array(self._numbers, np.int64))
        self._numbers = array("q")


def take_text(record: Record, names: Sequence[str]) -> str:
    """Return the text of some columns, joined with blanks; empty where there is none.

    Raises:
        DataError: If a column is missing from the row or holds something else than text.
    """
    if len(names) == 1 and type(record.get(names[0])) is str:  # by far the most frequent
        return str(record[names[0]])
    found = []
    for name in names:
        if name not in record:
            have = ", ".join(map(repr, record)) or "nothing"
            raise DataError(f"{name!r} is missing; found {have}")
        value = record[name]
        if is_missing(value):
            continue
        if not isinstance(value, str):
            raise DataError(f"{name!r} is {kind(value)}; expected a string")
        found.append(value)
    return found[0] if len(found) == 1 else " ".join(text for text in found if text)


def take_id(record: Record, name: str) -> str:
    """Return the id of a row.

    Raises:
        DataError: If it is missing or neither text nor a whole number.
    """
    if name not in record:
        raise DataError(f"some rows have {name!r} and some do not; give all or none")
    value = record[name]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    found = as_id(value)
    if found is None:
        raise DataError(f"{name!r} must be a string or a whole number")
    return found
