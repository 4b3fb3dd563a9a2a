"""Tables made into a data set, whatever kind of file they were in: columns, labels, splits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.indicator_columns import (
    LabelColumnsTable,
    indicator_labels,
    with_label_columns,
)
from umpteen.data.formats.lines import shown
from umpteen.data.formats.records import Fields, LabelNames, QueryRecords, read_labels
from umpteen.data.formats.separator_choice import Separator, choose_separator
from umpteen.data.formats.table_columns import Columns, choose_columns
from umpteen.data.formats.table_options import NO_SEPARATOR, TableOptions
from umpteen.data.formats.table_rows import SplitRows, Table
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError

SHOWN_ROWS = 3
SAMPLED_CELLS = 1 << 20
"""Cells of a split, from the first on, that the separator is found in."""
SHOWN_CHARACTERS = 60
_WHOLE = re.compile(r"\s*(?:\d+\.0)?\s*")


def read_tables(
    path: Path,
    tables: Mapping[str, Table],
    label_table: Table | None,
    options: TableOptions,
) -> Dataset:
    """Return a data set from tables.

    Args:
        path: The folder or file.
        tables: The table of each split.
        label_table: The table of labels, if there is one.
        options: What the user says about columns and separators.

    Returns:
        The data set, with notes on how it was read.

    Raises:
        DataError: With file, line or row, and column, if something is wrong.
    """
    labels = None
    if label_table is not None:
        unit = label_table.unit
        labels = read_labels(label_table.rows(), label_table.path, Fields(), unit=unit)
    label_set, queries, notes = read_splits(tables, labels, options)
    splits = {name: found.split(name, path, label_set) for name, found in queries.items()}
    notes += [note for found in queries.values() for note in found.targets.notes()]
    return shared.finish(path, label_set, splits, notes)


def read_splits(
    tables: Mapping[str, Table], labels: LabelSet | None, options: TableOptions
) -> tuple[LabelSet, dict[str, QueryRecords], list[str]]:
    """Return labels, the queries of each split, and how the tables were read."""
    tables = with_label_columns(tables, options)
    chosen = {name: pick_columns(table, options) for name, table in tables.items()}
    names = LabelNames(indicator_labels(tables.values()) if labels is None else labels)
    rows = {name: SplitRows(table, chosen[name], names) for name, table in tables.items()}
    waiting = False
    for each in rows.values():
        waiting = each.read(wait=waiting)
    _make_whole(list(rows.values()))
    # One rule for the whole data set: a split of single labels must not be read otherwise.
    cells = chain.from_iterable(islice(each.cells.texts(), SAMPLED_CELLS) for each in rows.values())
    separator = _separator(cells, labels, options)
    queries = {name: each.finish(separator.character) for name, each in rows.items()}
    notes: list[str] = []
    before: tuple[list[str], Columns] | None = None
    for name, table in tables.items():
        reading = (table.notes, chosen[name])
        said = table.notes or chosen[name].guessed or (before is None and separator.ambiguous)
        said = said or (isinstance(table, LabelColumnsTable) and table.guessed)
        if said and reading != before:
            notes.append(_describe(table, chosen[name], separator, queries[name], names))
        before = reading
    return names.label_set(), queries, notes


def _make_whole(rows: Sequence[SplitRows]) -> None:
    """Write labels 1.0 and 2.0 as 1 and 2 where all are: pandas writes numbers so beside gaps."""
    if all(each.cells.all_text and all(map(_WHOLE.fullmatch, each.cells.texts())) for each in rows):
        for each in rows:
            each.cells.whole = True


def pick_columns(table: Table, options: TableOptions, *, need_labels: bool = True) -> Columns:
    """Return the columns of a table that are read.

    Args:
        table: The table.
        options: What the user named.
        need_labels: Whether a table without labels is an error.

    Raises:
        DataError: With the file and its columns, if one is missing.
    """
    head: list[list[str]] = getattr(table, "head", [])
    if not options.header and len(table.columns) == 2 and head:
        options = _header_less(table.columns, head, options)
    try:
        return choose_columns(table.columns, options, need_labels=need_labels, empty=_empty(table))
    except DataError as error:
        hint = ", or use --no-header if the first line is a row"
        lacks_header = head and options.header and not options.given()
        raise DataError(f"{error}{hint if lacks_header else ''}", path=shown(table.path)) from error


def _empty(table: Table) -> list[str]:
    """Return the columns that are empty in the first rows of a csv or tsv file."""
    rows = [row for row in getattr(table, "head", [])[1:] if len(row) == len(table.columns)]
    return [
        name
        for place, name in enumerate(table.columns)
        if rows and not any(row[place].strip() for row in rows)
    ]


def _header_less(
    columns: Sequence[str], head: list[list[str]], options: TableOptions
) -> TableOptions:
    """Name the two columns of a file without a header: the longer cells are the texts."""
    sizes = [sum(len(row[place]) for row in head if len(row) == 2) for place in (0, 1)]
    text = options.text_columns or (columns[0 if sizes[0] >= sizes[1] else 1],)
    other = columns[1] if text[0] == columns[0] else columns[0]
    return replace(options, text_columns=text, label_column=options.label_column or other)


def _separator(cells: Iterable[str], labels: LabelSet | None, options: TableOptions) -> Separator:
    if options.separator is not None:
        return Separator(None if options.separator == NO_SEPARATOR else options.separator)
    known = options.known_labels if labels is None else {*labels.ids, *labels.titles}
    return choose_separator(cells, known)


def _describe(
    table: Table, columns: Columns, separator: Separator, queries: QueryRecords, names: LabelNames
) -> str:
    """Return how a table was read, with its first rows."""
    said = [*table.notes, columns.describe(), separator.describe()]
    if isinstance(table, LabelColumnsTable):
        said = [*table.notes, replace(columns, labels=None).describe(), table.reading]
    lines = [f"{shown(table.path)}: {'; '.join(said)}"]
    ids = names.label_set().ids
    texts = zip(queries.titles, queries.contents or [""] * len(queries.titles), strict=True)
    for row, (title, content) in enumerate(islice(texts, SHOWN_ROWS)):
        text = " ".join(f"{title} {content}".split())
        cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
        labels = " | ".join(ids[label] for label in queries.targets.labels_of(row)) or "(none)"
        lines.append(f"  {cut!r} -> {labels}")
    lines.append("  Change it with --text-column, --label-column, --separator and --delimiter.")
    return "\n".join(lines)
