"""Queries and labels out of records (JSON objects, rows of a table), whatever file they were in.

The formats that write one record per query name their fields here and share the checks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from umpteen.data.dataset import Split
from umpteen.data.formats.folder import read_filters
from umpteen.data.formats.lines import kind, shown
from umpteen.data.formats.targets import ROWS_IN_MEMORY, TargetRows, Unit
from umpteen.data.growing_array import GrowingArray
from umpteen.data.labels import LabelSet, RepeatedLabel
from umpteen.data.mapped_strings import StringRows
from umpteen.data.string_column import StringColumn
from umpteen.errors import DataError

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Fields:
    """What a format calls the parts of a record."""

    title: tuple[str, ...] = ("text", "title")
    """The names a text may go by; a record has exactly one of them."""
    content: str = "content"
    id: str = "id"
    labels: str = "labels"
    relevance: str = "relevance"
    metadata: str = "metadata"


class Resolves(Protocol):
    """Turns the labels of a record into label rows."""

    def __call__(self, values: Sequence[Any]) -> list[int]:
        """Return the rows; raises DataError without a place for what is no label."""


class LabelNames:
    """Labels as users write them: ids or, where no label has that id, texts.

    Without a label file the set grows with every new id, in order of first appearance.
    """

    def __init__(self, labels: LabelSet | None = None) -> None:
        self._labels = labels
        self._rows: Any = {} if labels is None else labels.rows
        self._index = self._rows if isinstance(self._rows, StringRows) else None
        self._by_text: dict[str, int] | None = None

    @property
    def in_blocks(self) -> bool:
        """Whether ``expect`` is worth a call: one search for many labels is far faster."""
        return self._index is not None

    def expect(self, cells: Iterable[Any]) -> None:
        """Find the labels of cells that come next.

        Args:
            cells: Lists of labels; others are left out.
        """
        if self._index is not None:
            lists = [cell for cell in cells if type(cell) is list]
            names = [name for cell in lists for name in cell if type(name) is str]
            self._rows = self._index.find(names)

    def __call__(self, values: Sequence[Any]) -> list[int]:
        """Return the rows of some labels."""
        return [self._row(value) for value in values]

    def label_set(self) -> LabelSet:
        """Return the label set: the given one, or the ids met so far."""
        if self._labels is not None:
            return self._labels
        ids = list(self._rows)
        return LabelSet(ids, ids)

    def _row(self, value: Any) -> int:
        name = as_id(value)
        if name is None or not name:
            raise DataError(
                f"a label is {kind(value) if name is None else 'empty'}; "
                "expected an id (a string or a whole number)"
            )
        row = self._rows.get(name)
        if row is None and self._index is not None:
            row = self._index.get(name)
        if row is not None:
            return row
        if self._labels is None:
            return self._rows.setdefault(name, len(self._rows))
        return self._row_by_text(name, self._labels)

    def _row_by_text(self, name: str, labels: LabelSet) -> int:
        if self._by_text is None:
            self._by_text = {}
            for row, title in enumerate(labels.titles):
                # -1 marks a text that several labels share and that therefore names none.
                self._by_text[title] = -1 if title in self._by_text else row
        found = self._by_text.get(name)
        if found is None:
            raise DataError(f"label {name!r} is neither an id nor a text in the file of labels")
        if found < 0:
            raise DataError(f"label {name!r} is the text of several labels; use the id")
        return found


def read_labels(
    records: Iterable[tuple[int, Record]], path: Path, fields: Fields, *, unit: Unit = "line"
) -> LabelSet:
    """Return a label set from records.

    Args:
        records: Line or row number, and record.
        path: Their file.
        fields: The names of the parts; a record without an id has its text as id.
        unit: What the numbers count.

    Returns:
        The labels in the order of the records.

    Raises:
        DataError: If there are none, an id is missing, empty or there twice.
    """
    place = TargetRows(path, unit=unit)
    ids, titles, contents = StringColumn(), StringColumn(), StringColumn()
    metadata: dict[int, Mapping[str, Any]] = {}
    numbers, recent = GrowingArray(np.int64), array("q")
    for number, record in records:
        try:
            title, content = take_texts(record, fields, default=fields.id)
            about = record.get(fields.metadata)
            label_id = as_id(record.get(fields.id, title))
            if not label_id:
                raise DataError(f"the label's {fields.id!r} must be a string or a whole number")
        except DataError as error:
            raise place.error(str(error), number) from error
        if about and isinstance(about, dict):
            metadata[numbers.length + len(recent)] = about
        ids.append(label_id)
        titles.append(title)
        contents.append(content)
        recent.append(number)
        if len(recent) >= ROWS_IN_MEMORY:
            numbers.extend(np.array(recent))
            recent = array("q")
    numbers.extend(np.array(recent))
    if not numbers.length:
        raise DataError("the file has no labels; at least one is needed", path=shown(path))
    try:
        return LabelSet(
            ids.finish(),
            titles.finish(),
            contents.finish() if contents.has_text else None,
            [metadata.get(row, {}) for row in range(numbers.length)] if metadata else None,
        )
    except RepeatedLabel as error:
        number, before = numbers.finish()[list(error.rows)].tolist()
        raise place.error(
            f"label id {error.label_id!r} is there already at {unit} {before}; "
            "every label needs an id of its own",
            number,
        ) from error


@dataclass(frozen=True)
class QueryRecords:
    """The queries of one split before the number of labels is known."""

    titles: Sequence[str]
    contents: Sequence[str] | None
    ids: Sequence[str] | None
    targets: TargetRows

    def split(self, name: str, folder: Path, labels: LabelSet) -> Split:
        """Return the split, with its filters."""
        matrix = self.targets.matrix(len(labels))
        filters = read_filters(folder, name, matrix.shape)
        return Split(self.titles, matrix, self.contents, self.ids, filters)


def read_queries(
    records: Iterable[tuple[int, Record]], targets: TargetRows, resolve: Resolves, fields: Fields
) -> QueryRecords:
    """Return the queries of one file.

    Args:
        records: Line or row number, and record.
        targets: An empty collector for the file.
        resolve: Turns labels into rows.
        fields: The names of the parts.

    Returns:
        The queries.

    Raises:
        DataError: With file and line of the first record that is wrong.
    """
    titles, contents, ids = StringColumn(), StringColumn(), StringColumn()
    with_ids = False
    for number, record in records:
        try:
            title, content = take_texts(record, fields)
            query_id = as_id(record.get(fields.id, ""))
            if query_id is None:
                raise DataError(f"{fields.id!r} must be a string or a whole number")
            if (fields.id in record) != with_ids and len(targets):
                raise DataError(f"some rows have {fields.id!r} and some do not; give all or none")
            relevance = None
            if record.get(fields.relevance) is not None:
                relevance = _take_numbers(record, fields.relevance)
            values = _take_list(record, fields.labels)
        except DataError as error:
            raise targets.error(str(error), number) from error
        try:
            rows = resolve(values)
        except DataError as error:
            raise targets.error(str(error), number, targets.column) from error
        targets.add(rows, relevance, number)
        titles.append(title)
        contents.append(content)
        with_ids = fields.id in record
        if with_ids:
            ids.append(query_id)
    about = contents.finish() if contents.has_text else None
    return QueryRecords(titles.finish(), about, ids.finish() if with_ids else None, targets)


def take_texts(record: Record, fields: Fields, *, default: str | None = None) -> tuple[str, str]:
    """Return title and content of a record; the content is empty where there is none.

    Args:
        record: The record.
        fields: The names of the parts.
        default: A field that stands in for a missing title.

    Raises:
        DataError: If there is no title, there are two, or one is not a string.
    """
    given = [name for name in fields.title if name in record]
    if len(given) > 1:
        raise DataError(f"both {given[0]!r} and {given[1]!r} are there; give one of them")
    if not given and default is not None and default in record:
        return str(record[default]), ""
    if not given:
        found = ", ".join(map(repr, record)) or "nothing"
        expected = " or ".join(map(repr, fields.title))
        raise DataError(f"{expected} is missing; found {found}")
    title, content = record[given[0]], record.get(fields.content)
    if not isinstance(title, str):
        raise DataError(f"{given[0]!r} is {kind(title)}; expected a string")
    if content is not None and not isinstance(content, str):
        raise DataError(f"{fields.content!r} is {kind(content)}; expected a string")
    return title, content or ""


def as_id(value: Any) -> str | None:
    """Return a string or whole number as an id; None for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _take_list(record: Record, name: str) -> Sequence[Any]:
    if name not in record:
        found = ", ".join(map(repr, record))
        raise DataError(f"{name!r} is missing; found {found}")
    values = record[name]
    if not isinstance(values, list):
        raise DataError(f"{name!r} is {kind(values)}; expected a list")
    return values


def _take_numbers(record: Record, name: str) -> list[float]:
    values = _take_list(record, name)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise DataError(f"{name!r} must hold numbers only")
    return list(values)
