"""Data sets from tables in memory: pandas, Arrow (polars, duckdb and others), Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from umpteen.data.dataset import SPLITS, Dataset, Propensity
from umpteen.data.formats.arrow_table import ArrowTable, class_names_of, open_arrow
from umpteen.data.formats.hugging_face import SPLIT_ALIASES
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.table_rows import Table
from umpteen.data.formats.tables import read_splits
from umpteen.data.formats.targets import Unit
from umpteen.data.labels import LabelSet
from umpteen.data.statistics import unlabelled_notes
from umpteen.errors import DataError

ROWS_AT_ONCE = 4096


def from_tables(
    tables: Mapping[str, Table],
    options: TableOptions,
    *,
    label_texts: Mapping[Any, str] | None = None,
    propensity: Propensity = Propensity(),  # noqa: B008 - frozen
    name: str,
) -> Dataset:
    """Return a data set from the tables of its splits.

    Args:
        tables: The table of each split.
        options: What the user says about columns and separators.
        label_texts: Id to text; with it, no other label may occur.
        propensity: Constants for propensity-scored metrics.
        name: What to call the data.

    Raises:
        DataError: If a column is missing or a value is of the wrong type.
    """
    labels = None
    if label_texts is not None:
        ids = [str(key) for key in label_texts]
        labels = LabelSet(ids, [str(text) for text in label_texts.values()])
    with argument_names():
        label_set, queries, notes = read_splits(tables, labels, options)
    nowhere = Path("")
    splits = {split: found.split(split, nowhere, label_set) for split, found in queries.items()}
    notes += [note for found in queries.values() for note in found.targets.notes()]
    dataset = Dataset(label_set, splits, propensity, name)
    return replace(dataset, notes=(*notes, *unlabelled_notes(dataset)))


@contextmanager
def argument_names() -> Iterator[None]:
    """Name options of the command line in errors as the arguments that they are in Python."""
    try:
        yield
    except DataError as error:
        said = re.sub(r"--(text|label|id)-column", r"\1_column=", str(error))
        if said == str(error):
            raise
        raise DataError(said) from error


def open_frames(value: Any, **splits: Any) -> dict[str, Table]:
    """Return tables in memory by split.

    Args:
        value: A data frame or table, or a mapping from split to one (as ``DatasetDict`` is).
        **splits: Further splits by name; None where there is none.

    Raises:
        DataError: If a value is no table, or a split is not known.
    """
    given = dict(value) if isinstance(value, Mapping) and not _is_column_mapping(value) else {}
    if not given:
        given = {"train": value}
    given |= {name: table for name, table in splits.items() if table is not None}
    renamed = {SPLIT_ALIASES.get(name, name): table for name, table in given.items()}
    unknown = next((name for name in renamed if name not in SPLITS), None)
    if unknown is not None:
        raise DataError(f"split {unknown!r} is not known; a data set has {', '.join(SPLITS)}")
    return {name: open_frame(renamed[name], name) for name in SPLITS if name in renamed}


def open_frame(value: Any, name: str = "train") -> Table:
    """Return one table in memory as rows that can be read.

    Args:
        value: A DataFrame, an Arrow table, a Hugging Face ``Dataset``, a dict of columns.
        name: What to call it in messages.

    Raises:
        DataError: If it is none of these.
    """
    if hasattr(value, "features") and hasattr(value, "with_format"):
        return _open_hugging_face(value, name)
    if _is_pandas(value):
        twice = [str(label) for label in value.columns[value.columns.duplicated()]]
        if twice:
            raise DataError(f"column {twice[0]!r} is there twice; rename one of them", path=name)
        columns = {str(label): value[label] for label in value.columns}
        return FrameTable(name, columns, len(value))
    if _is_column_mapping(value):
        sizes = {len(column) for column in value.values()}
        if len(sizes) > 1:
            raise DataError(f"the columns of {name} have different lengths: {sorted(sizes)}")
        return FrameTable(name, {str(key): column for key, column in value.items()}, sizes.pop())
    if hasattr(value, "to_frame") and not hasattr(value, "columns"):
        raise DataError(
            f"{name} is one column ({type(value).__name__}); expected a table with texts and labels"
        )
    return open_arrow(value, name)


def is_frame(value: Any) -> bool:
    """Return whether ``open_frame`` reads a value: a table, not a list of texts or a matrix."""
    return (
        hasattr(value, "__arrow_c_stream__")
        or (hasattr(value, "features") and hasattr(value, "with_format"))
        or _is_pandas(value)
    ) and not (hasattr(value, "to_list") and not hasattr(value, "columns"))


class FrameTable:
    """Columns in memory: lists, arrays or pandas Series."""

    unit: Unit = "row"

    def __init__(self, name: str, columns: Mapping[str, Any], n_rows: int) -> None:
        self.path = Path(name)
        self.columns = list(columns)
        self.notes: list[str] = []
        self._values = columns
        self._n_rows = n_rows

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield row number and values of each row."""
        wanted = self.columns if columns is None else list(columns)
        for start in range(0, self._n_rows, ROWS_AT_ONCE):
            parts = [_values(self._values[name], start) for name in wanted]
            for place, row in enumerate(zip(*parts, strict=True), start + 1):
                yield place, dict(zip(wanted, row, strict=True))

    def first_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows from the first on."""
        return (record for _, record in self.rows())


def _values(column: Any, start: int) -> list[Any]:
    part = column.iloc if hasattr(column, "iloc") else column
    part = part[start : start + ROWS_AT_ONCE]
    values = part.tolist() if hasattr(part, "tolist") else list(part)
    return [value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
            for value in values]  # fmt: skip


def _open_hugging_face(value: Any, name: str) -> ArrowTable:
    """Return a Hugging Face data set; with_format reads through its selection and shuffling."""
    if not hasattr(value, "__len__"):
        raise DataError(
            f"{name} is a streamed data set; load it whole (streaming=False), or take rows of it: "
            "datasets.Dataset.from_list(list(stream.take(1000)))"
        )
    table = value.with_format("arrow")[:]
    names: dict[str, list[str]] = {}
    for column, feature in value.features.items():
        found = _class_names(feature)
        if found is not None:
            names[column] = found
    return open_arrow(table, name, names)


def _class_names(feature: Any) -> list[str] | None:
    names = getattr(feature, "names", None)
    if names is not None and type(feature).__name__ == "ClassLabel":
        return [str(each) for each in names]
    if isinstance(feature, list | dict):
        return class_names_of(feature)
    inner = getattr(feature, "feature", None)
    return None if inner is None else _class_names(inner)


def _is_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns")


def _is_column_mapping(value: Any) -> bool:
    """Return whether a value is a dict of columns, not of splits."""
    return isinstance(value, dict) and all(
        isinstance(column, list | tuple) or hasattr(column, "tolist") for column in value.values()
    )
