"""Tables with text and labels columns made into a data set, whatever kind of file they were in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.label_separators import find_separator, split_cell, split_numbers
from umpteen.data.formats.lines import shown
from umpteen.data.formats.records import Fields, LabelNames, read_labels, read_queries
from umpteen.data.formats.targets import TargetRows, Unit
from umpteen.errors import DataError

FIELDS = Fields()
TEXT_COLUMNS = FIELDS.title

Record = dict[str, Any]
TableRows = Iterator[tuple[int, Record]]


def read_tables(
    path: Path,
    files: dict[str, Path],
    label_file: Path | None,
    read_rows: Callable[[Path], TableRows],
    *,
    unit: Unit,
) -> Dataset:
    """Return a data set from tables.

    Args:
        path: The folder or file.
        files: The table of each split.
        label_file: The table of labels, if there is one.
        read_rows: Reads a table as numbered records; cells may be text or lists.
        unit: What the numbers count.

    Returns:
        The data set.

    Raises:
        DataError: With file, line or row, and column, if something is wrong.
    """
    labels = None
    if label_file is not None:
        labels = read_labels(read_rows(label_file), label_file, FIELDS, unit=unit)
    names = LabelNames(labels)
    tables = {name: _checked(file, read_rows(file)) for name, file in files.items()}
    # One rule for the whole data set: a split of single labels must not be read otherwise.
    cells = (record[FIELDS.labels] for rows in tables.values() for _, record in rows)
    separator = find_separator(cell for cell in cells if isinstance(cell, str))
    queries = {}
    for name, file in files.items():
        targets = TargetRows(file, unit=unit, column=FIELDS.labels)
        records = _split_cells(tables.pop(name), separator, targets)
        queries[name] = read_queries(records, targets, names, FIELDS)
    label_set = names.label_set()
    splits = {name: found.split(name, path, label_set) for name, found in queries.items()}
    return shared.finish(path, label_set, splits)


def _checked(file: Path, rows: TableRows) -> list[tuple[int, Record]]:
    """Return all rows, with only the columns we read; the labels column must be there."""
    wanted = {*FIELDS.title, FIELDS.content, FIELDS.id, FIELDS.labels, FIELDS.relevance}
    kept: list[tuple[int, Record]] = []
    for number, record in rows:
        if not kept:
            _check_columns(file, record)
        kept.append((number, {name: record[name] for name in wanted & record.keys()}))
    return kept


def _check_columns(file: Path, record: Record) -> None:
    have = ", ".join(map(repr, record))
    if FIELDS.labels not in record:
        raise DataError(
            f"no column 'labels'; the columns are {have}. Rename the one with the labels",
            path=shown(file),
        )
    if not any(name in record for name in FIELDS.title):
        raise DataError(
            f"no column 'text' or 'title'; the columns are {have}. Rename the one with the text",
            path=shown(file),
        )


def _split_cells(rows: list[tuple[int, Record]], separator: str, targets: TargetRows) -> TableRows:
    for number, record in rows:
        column = FIELDS.labels
        try:
            if isinstance(record[column], str):
                record[column] = split_cell(record[column], separator)
            elif record[column] is None:
                record[column] = []
            elif not isinstance(record[column], list):
                record[column] = [record[column]]
            column = FIELDS.relevance
            if isinstance(record.get(column), str):
                record[column] = split_numbers(record[column], separator)
        except DataError as error:
            raise targets.error(str(error), number, column) from error
        yield number, record
