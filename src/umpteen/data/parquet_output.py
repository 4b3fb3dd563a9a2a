"""A parquet file made of JSON lines, some rows at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from umpteen.extras import require
from umpteen.files import atomic_file

ROWS_AT_ONCE = 16_384
MAX_INT = 1 << 63


def kinds_of(
    records: Sequence[dict[str, Any]], known: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Return the kinds of values of each column, with those known before.

    Example:
        >>> kinds_of([{"a": 1}, {"a": 2.5, "b": None}], {"a": ["str"]})
        {'a': ['float', 'int', 'str'], 'b': []}
    """
    found = {name: set(kinds) for name, kinds in known.items()}
    for record in records:
        for name, value in record.items():
            kind = _kind(value)
            found.setdefault(name, set())
            if kind is not None:
                found[name].add(kind)
    return {name: sorted(kinds) for name, kinds in found.items()}


def write_parquet(lines: Path, path: Path, kinds: Mapping[str, list[str]]) -> None:
    """Write a parquet file from JSON lines; memory does not grow with their number.

    A column of mixed kinds becomes text.
    """
    pa = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    types = {name: _type(pa, name, own) for name, own in kinds.items()}
    schema = pa.schema(list(types.items()))
    with atomic_file(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for rows in _blocks(lines):
            columns = [
                pa.array([_value(row.get(name), kinds[name], name) for row in rows], type=own)
                for name, own in types.items()
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _blocks(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with lines.open(encoding="utf-8", errors="surrogatepass") as source:
        while block := list(islice(source, ROWS_AT_ONCE)):
            yield [json.loads(line) for line in block]


def _kind(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -MAX_INT <= value < MAX_INT else "other"
    if isinstance(value, float | str):
        return type(value).__name__
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "strings"
    return "other"


def _type(pa: Any, name: str, kinds: Sequence[str]) -> Any:
    if name == "labels":
        label = pa.struct([("id", pa.string()), ("text", pa.string()), ("score", pa.float64())])
        return pa.list_(label)
    own = set(kinds)
    if own == {"bool"}:
        return pa.bool_()
    if own == {"int"}:
        return pa.int64()
    if own and own <= {"int", "float"}:
        return pa.float64()
    return pa.list_(pa.string()) if own == {"strings"} else pa.string()


def _value(value: Any, kinds: Sequence[str], name: str) -> Any:
    if value is None or name == "labels":
        return value
    own = set(kinds)
    if own <= {"int", "float"}:
        return float(value) if "float" in own else value
    if own in ({"bool"}, {"strings"}) or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
