"""Markdown tables on stdout, whole or row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def cell(value: Any, digits: int = 2) -> str:
    """A value as it is shown: floats with digits, a dash for what is not known."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.{digits}f}"
    return str(value)


def line(cells: Iterable[Any], digits: int = 2) -> str:
    """One line of a table."""
    return "| " + " | ".join(cell(value, digits) for value in cells) + " |"


def header(columns: Sequence[str]) -> str:
    """The two lines that start a table."""
    return line(columns) + "\n|" + "---|" * len(columns)


class Table:
    """A table that is printed as its rows come: a benchmark that is stopped keeps its rows."""

    def __init__(self, columns: Sequence[str], digits: int = 2) -> None:
        self.digits = digits
        print(header(columns), flush=True)

    def add(self, *cells: Any) -> None:
        """Print one row."""
        print(line(cells, self.digits), flush=True)


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | Mapping[str, str] | None = None,
    digits: int = 2,
) -> None:
    """Print rows as one table.

    Args:
        rows: Values by name.
        columns: The names to show, or names with their titles; by default those of the first row.
        digits: After the point of a float.
    """
    if columns is None:
        columns = list(rows[0]) if rows else []
    titles = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    table = Table(list(titles.values()), digits)
    for row in rows:
        table.add(*(row.get(name) for name in titles))
