"""Arrow data as a table: anything with ``__arrow_c_stream__``, and class names of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from umpteen.data.formats.lines import shown
from umpteen.data.formats.targets import Unit
from umpteen.errors import DataError
from umpteen.extras import require

ROWS_AT_ONCE = 1024
METADATA = b"huggingface"


class ArrowTable:
    """Record batches of one schema; rows are read once, in small slices."""

    unit: Unit = "row"

    def __init__(
        self,
        path: Path,
        schema: Any,
        batches: Callable[[list[str]], Iterable[Any]],
        class_names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.path = path
        self.columns = list(schema.names)
        self.notes: list[str] = []
        self._batches = batches
        self._class_names = {**read_class_names(schema.metadata), **(class_names or {})}

    def followed_by(self, others: Sequence[ArrowTable]) -> ArrowTable:
        """Return this table with the rows of others after its own.

        Raises:
            DataError: If another one lacks a column.
        """
        for other in others:
            lacking = [name for name in self.columns if name not in other.columns]
            if lacking:
                raise DataError(
                    f"column {lacking[0]!r} is missing (found: {', '.join(other.columns)}); all "
                    f"files of a split need the columns of {self.path}",
                    path=shown(other.path),
                )
        batches = [self._batches, *(other._batches for other in others)]
        joined = ArrowTable.__new__(ArrowTable)
        vars(joined).update(vars(self))
        joined._batches = lambda wanted: chain.from_iterable(each(wanted) for each in batches)
        return joined

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield row number and values of each row.

        Args:
            columns: The columns wanted; all by default.

        Raises:
            DataError: If the data is damaged or a class number has no name.
        """
        wanted = list(dict.fromkeys(self.columns if columns is None else columns))
        number = 0
        for batch in self._checked(wanted):
            values = [self._values(batch, name, number) for name in wanted]
            for row in zip(*values, strict=True):
                number += 1
                yield number, dict(zip(wanted, row, strict=True))

    def first_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows from the first on, from batches that are made again."""
        return (record for _, record in self.rows())

    def _checked(self, wanted: list[str]) -> Iterator[Any]:
        try:
            for batch in self._batches(wanted):
                batch.validate(full=True)
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    yield batch.slice(start, ROWS_AT_ONCE)
        except DataError:
            raise
        except Exception as error:
            # Damage shows as errors of many kinds, from Arrow's own to those of text decoding.
            raise DataError(f"the data cannot be read ({error})", path=shown(self.path)) from error

    def _values(self, batch: Any, name: str, start: int) -> list[Any]:
        values: list[Any] = batch.column(batch.schema.get_field_index(name)).to_pylist()
        names = self._class_names.get(name)
        if names is None:
            return values
        try:
            return [_named(value, names) for value in values]
        except (IndexError, TypeError) as error:
            raise DataError(
                f"a class number is outside the {len(names)} names of the schema ({error})",
                path=shown(self.path),
                column=name,
                row=start + 1,
            ) from error


def read_class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return the class names that Hugging Face ``datasets`` wrote into a schema, by column.

    Columns of numbers and of lists of numbers may have them.
    """
    try:
        value = json.loads((metadata or {}).get(METADATA, b"{}"))
        features = value["info"]["features"]
        return {name: found for name, each in features.items() if (found := class_names_of(each))}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def class_names_of(feature: Any) -> list[str] | None:
    """Return the names of a feature in JSON form, or None if it holds no class numbers.

    Example:
        >>> class_names_of({"feature": {"names": ["a", "b"], "_type": "ClassLabel"}})
        ['a', 'b']
    """
    if isinstance(feature, list) and len(feature) == 1:
        return class_names_of(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
        return [str(name) for name in feature["names"]]
    return class_names_of(feature.get("feature"))


def open_arrow(
    value: Any, name: str, class_names: Mapping[str, Sequence[str]] | None = None
) -> ArrowTable:
    """Return anything that gives Arrow data (``__arrow_c_stream__``) as a table.

    Args:
        value: A table of pyarrow, polars, pandas, duckdb or another library.
        name: What to call it in messages.
        class_names: Names for columns of class numbers.

    Raises:
        DataError: If it gives no Arrow data.
        MissingExtra: If pyarrow is not installed.
    """
    if not hasattr(value, "__arrow_c_stream__"):
        raise DataError(
            f"expected a table with __arrow_c_stream__ (pyarrow, polars, pandas), got "
            f"{type(value).__name__}"
        )
    arrow = require("pyarrow", extra="parquet")
    table = arrow.table(value)
    return ArrowTable(
        Path(name), table.schema, lambda wanted: table.select(wanted).to_batches(), class_names
    )


def _named(value: Any, names: Sequence[str]) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if isinstance(value, str):
        return value
    # Hugging Face writes -1 where the class is not known.
    if value == -1:
        return None
    if value < 0:
        raise IndexError(value)
    return names[value]
