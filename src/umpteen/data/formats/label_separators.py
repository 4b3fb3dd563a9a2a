"""Several labels in one cell of a table: the rule that takes them apart, and its reverse.

The rule: a cell that begins with ``[`` is a JSON list. Otherwise labels are separated by ``;`` if
any cell of the data has one, else by ``|``. Blanks around a label are dropped, and so are empty
pieces. An empty cell is a row without labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from umpteen.data.formats.lines import kind
from umpteen.errors import DataError

SEPARATORS = (";", "|")


def find_separator(cells: Iterable[str]) -> str:
    """Return the separator that the labels of a data set use.

    Example:
        >>> find_separator(["a|b", "c"]), find_separator(["a|b", "c;d"])
        ('|', ';')
    """
    found = SEPARATORS[0]
    for cell in cells:
        if cell.startswith("["):
            continue
        if SEPARATORS[0] in cell:
            return SEPARATORS[0]
        if SEPARATORS[1] in cell:
            found = SEPARATORS[1]
    return found


def split_cell(cell: str, separator: str) -> list[Any]:
    """Return the labels of a cell.

    Raises:
        DataError: If it begins with ``[`` and is not a JSON list.

    Example:
        >>> split_cell(" a ;b;", ";"), split_cell('["x;y", 3]', ";")
        (['a', 'b'], ['x;y', 3])
    """
    cell = cell.strip()
    if not cell.startswith("["):
        return [piece for piece in map(str.strip, cell.split(separator)) if piece]
    try:
        values = json.loads(cell)
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise DataError(f"the cell begins like a JSON list and is none ({error})") from error
    return list(values)


def split_numbers(cell: str, separator: str) -> list[float] | None:
    """Return the relevances of a cell, None for an empty one.

    Raises:
        DataError: If a piece is not a number.
    """
    pieces = split_cell(cell, separator)
    if not pieces:
        return None
    try:
        return [float(piece) for piece in pieces]
    except (TypeError, ValueError, OverflowError):
        wrong = next(piece for piece in pieces if not _is_number(piece))
        shown = repr(wrong) if isinstance(wrong, str) else kind(wrong)
        raise DataError(f"{shown} is not a number") from None


def can_be_joined(ids: Iterable[str]) -> bool:
    """Return whether ids survive ``;`` between them; if not, JSON lists are written instead."""
    return not any(
        not name
        or name != name.strip()
        or name.startswith("[")
        or any(separator in name for separator in SEPARATORS)
        for name in ids
    )


def join_cell(values: Sequence[Any], *, joined: bool) -> str:
    """Return the cell for some labels or relevances."""
    if joined:
        return SEPARATORS[0].join(map(str, values))
    return json.dumps(list(values), ensure_ascii=False)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
