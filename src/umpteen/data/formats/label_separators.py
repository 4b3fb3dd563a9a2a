"""Several labels in one cell of a table: taken apart, and written so that they can be.

A cell that begins with ``[`` is a list, as JSON or as Python writes it. Otherwise a separator
stands between the labels; ``separator_choice`` finds it. Blanks around a label are dropped, and so
are empty pieces. An empty cell is a row without labels, and so is one that holds nan or NaN.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from umpteen.data.formats.lines import kind
from umpteen.data.formats.separator_choice import COMMA, SURE, pieces
from umpteen.errors import DataError

NAN = ("nan", "NaN")
"""What Python and pandas write for a missing value."""
MAX_LITERAL = 1_000_000
"""Characters; Python's own parser needs much memory for a long list."""
_QUOTED = r"""(?:'[^']*'|"[^"]*")"""
_NUMPY = re.compile(rf"\[\s*(?:{_QUOTED}(?:\s+{_QUOTED})+|\d+(?:\s+\d+)*)\s*\]")


def label_values(cell: Any, separator: str | None) -> list[Any]:
    """Return the labels of a cell of any type.

    Args:
        cell: Text, a list, a number, or nothing (None, NaN).
        separator: Stands between labels in text; None if a cell is one label.

    Returns:
        Strings and whole numbers, without what is empty.

    Raises:
        DataError: If it begins with ``[`` and is no list, or holds a value of another type.

    Example:
        >>> label_values("['a', 'b']", None), label_values(3.0, None), label_values(None, ";")
        (['a', 'b'], [3], [])
    """
    if isinstance(cell, str):
        return split_cell(cell, separator)
    if type(cell) is list and "" not in cell and set(map(type, cell)) <= {str}:
        return cell
    if hasattr(cell, "tolist"):
        cell = cell.tolist()
    values = list(cell) if isinstance(cell, list | tuple | set | frozenset) else [cell]
    return [_plain(value) for value in values if not is_missing(value) and value != ""]


def split_cell(cell: str, separator: str | None) -> list[Any]:
    """Return the labels of a cell with text.

    Raises:
        DataError: If it begins with ``[`` and is no list.

    Example:
        >>> split_cell(" a ;b;", ";"), split_cell('["x;y", 3]', ";")
        (['a', 'b'], ['x;y', 3])
    """
    cell = cell.strip()
    if cell in NAN:
        return []
    if not cell.startswith("["):
        return pieces(cell, separator)
    return [_plain(value) for value in _read_list(cell) if not is_missing(value) and value != ""]


def is_missing(value: Any) -> bool:
    """Return whether a value stands for nothing: None, NaN, or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def split_numbers(cell: Any, separator: str | None) -> list[float] | None:
    """Return the relevances of a cell, None for an empty one.

    Raises:
        DataError: If a piece is not a number.
    """
    values = cell if isinstance(cell, list) else label_values(cell, separator)
    if not values:
        return None
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        wrong = next(value for value in values if not _is_number(value))
        shown = repr(wrong) if isinstance(wrong, str) else kind(wrong)
        raise DataError(f"{shown} is not a number") from None


def can_be_joined(ids: Iterable[str]) -> bool:
    """Return whether ids survive ``;`` between them; if not, JSON lists are written instead."""
    return not any(
        not name
        or name != name.strip()
        or name.startswith("[")
        or "&" in name  # with a semicolon behind it, it may be read as an entity
        or any(separator in name for separator in (*SURE, COMMA))
        for name in ids
    )


def join_cell(values: Sequence[Any], *, joined: bool) -> str:
    """Return the cell for some labels or relevances."""
    if joined:
        return SURE[0].join(map(str, values))
    return json.dumps(list(values), ensure_ascii=False)


def _read_list(cell: str) -> list[Any]:
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError) as error:
        values = _read_python_list(cell)
        if values is None:
            raise DataError(f"looks like a list but does not parse ({error})") from error
    try:
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError("a \\u escape gives half of a surrogate pair") from error
    return list(values)


def _read_python_list(cell: str) -> list[Any] | None:
    """Return a list as Python and NumPy write it, None if it is none."""
    if len(cell) > MAX_LITERAL or "\0" in cell:
        return None
    if _NUMPY.fullmatch(cell):
        # NumPy leaves the commas out; Python would join the strings.
        return [
            found[1:-1] if found[0] in "'\"" else found
            for found in re.findall(rf"{_QUOTED}|\d+", cell)
        ]
    try:
        values = ast.literal_eval(cell)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None
    if not isinstance(values, list) or not all(isinstance(v, str | int | float) for v in values):
        return None
    return values


def _plain(value: Any) -> Any:
    """Return a label as a string or whole number where it is one in another type."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
