"""Check the texts that a caller gives: one string, or a column of strings in any container."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from umpteen.errors import DataError

_NAMED = 6
"""Column names in a message."""


def as_texts(texts: Any, *, name: str = "texts") -> list[str]:
    """Return one text or several as a list.

    Args:
        texts: A string; or a list, tuple, iterator, one-dimensional array or column (pandas,
            polars, Arrow) of strings.
        name: What the texts are called in messages.

    Returns:
        The texts in their order.

    Raises:
        DataError: If something else was given: a table, a mapping, bytes, a file, numbers, nested
            lists or missing values.

    Example:
        >>> as_texts("one"), as_texts(("one", "two"))
        (['one'], ['one', 'two'])
    """
    if isinstance(texts, str):
        return [str(texts)]
    _require_column(texts, name)
    batch = _values(texts)
    # One pass in C for the usual case; the loop looks for the place of a mistake.
    if set(map(type, batch)) <= {str}:
        return batch
    for place, text in enumerate(batch):
        if not isinstance(text, str):
            raise DataError(_wrong_element(f"{name}[{place}]", text))
    return [str(text) for text in batch]


def _values(texts: Any) -> list[Any]:
    for method in ("to_pylist", "to_list", "tolist"):
        if callable(getattr(texts, method, None)):
            return list(getattr(texts, method)())
    return list(texts)


def _require_column(texts: Any, name: str) -> None:
    """Raise unless the value can be a column of texts."""
    kind = type(texts).__name__
    columns = getattr(texts, "column_names", None)
    columns = getattr(texts, "columns", None) if columns is None else columns
    if columns is not None and not callable(columns):
        shown = ", ".join(repr(str(column)) for column in list(columns)[:_NAMED])
        more = ", .." if len(columns) > _NAMED else ""
        raise DataError(
            f"{name} is a table ({kind} with the columns {shown}{more}); pass one column of it, "
            f"such as table[{str(next(iter(columns), 'text'))!r}]"
        )
    if isinstance(texts, Mapping):
        raise DataError(f"{name} is a {kind}; pass the texts alone, as a list of strings")
    if hasattr(texts, "splits") and hasattr(texts, "labels"):
        raise DataError(f"{name} is a data set; pass the texts of a split: data['test'].texts()")
    if callable(getattr(texts, "texts", None)):
        raise DataError(f"{name} is a split of a data set; pass its texts: split.texts()")
    if isinstance(texts, os.PathLike):
        raise DataError(
            f"{name} is a path ({os.fspath(texts)!r}); read the file and pass its texts, or use "
            "the command umpteen predict RUN FILE"
        )
    if isinstance(texts, AbstractSet):
        raise DataError(f"{name} is a {kind}, which has no order; pass a list of strings")
    shape = getattr(texts, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        raise DataError(f"{name} has the shape {shape}; pass one dimension of strings")
    if texts is None:
        raise DataError(f"{name} is None; pass a string or a list of strings")
    if isinstance(texts, bytes | bytearray | memoryview) or not isinstance(texts, Iterable):
        raise DataError(_wrong_element(name, texts))


def _wrong_element(place: str, value: Any) -> str:
    """Return the sentence about a value that is no text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{place} is bytes; decode it first: value.decode('utf-8')"
    if _missing(value):
        return (
            f"{place} is missing ({value!r:.20}); leave such rows out, or fill them: "
            "df['text'].fillna('')"
        )
    if isinstance(value, list | tuple):
        return f"{place} is a {type(value).__name__}; pass strings, one for each text"
    return f"{place} is {type(value).__name__}, not text; pass a string or a list of strings"


def _missing(value: Any) -> bool:
    """Return whether a value stands for a missing one: None, NaN, pandas.NA."""
    nan = isinstance(value, float) and value != value
    return value is None or type(value).__name__ == "NAType" or nan
