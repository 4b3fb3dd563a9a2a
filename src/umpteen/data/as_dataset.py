"""Whatever a Python caller gives as data, as a ``Dataset``: paths, tables, texts and labels."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import load_dataset
from umpteen.data.formats.table_options import TableOptions, one_or_several
from umpteen.data.frames import argument_names, from_tables, is_frame, open_frames
from umpteen.errors import DataError
from umpteen.text_input import as_texts

logger = logging.getLogger(__name__)


def as_dataset(
    data: Any,
    labels: Any = None,
    *,
    classes: Sequence[Any] | None = None,
    label_texts: Mapping[Any, str] | Sequence[str] | None = None,
    text_column: str | Sequence[str] | None = None,
    label_column: str | Sequence[str] | None = None,
    separator: str | None = None,
    known_labels: Sequence[str] | None = None,
) -> Dataset:
    """Return data as a ``Dataset``.

    Args:
        data: A ``Dataset``; the path of a file or folder; a table (pandas, polars, Arrow, Hugging
            Face, or a dict of columns); or texts.
        labels: The labels of texts: a list for each text, one label or cell for each, or an
            indicator matrix with ``classes``. For a table, the name of the label column, or the
            names of several.
        classes: Label ids in the column order of an indicator matrix.
        label_texts: Id to text.
        text_column: The column with the text, for paths and tables; found by name if left out.
        label_column: The column with the labels, or a list of columns.
        separator: Stands between the labels of a cell.
        known_labels: Ids of the labels that a model has; they decide how cells are separated.

    Returns:
        The data set. How it was read is logged where that may be otherwise than meant.

    Raises:
        DataError: If the values are of another kind or do not fit together.
    """
    table = is_table(data)
    if table and label_column is None and _names_columns(labels):
        labels, label_column = None, labels
    one, several = one_or_several(label_column)
    options = TableOptions(text_column or (), one, None, separator, label_columns=several)
    if known_labels is not None:
        options = options.with_known(known_labels)
    if not (table or isinstance(data, Dataset | str | os.PathLike)):
        return _logged(_from_texts(data, labels, classes, label_texts, options))
    _refuse(labels, "labels", "it has its own; pass texts and labels, or data alone")
    _refuse(classes, "classes", "they belong to an indicator matrix of labels")
    if isinstance(data, Dataset):
        _refuse(label_texts, "label_texts", "a data set has its own")
        _refuse(next(iter(options.given()), None), "a column or separator", "it is read already")
        return data
    if not table:
        _refuse(label_texts, "label_texts", "write them to a labels.csv in the folder")
        with argument_names():
            return load_dataset(os.fspath(data), options=options)
    if label_texts is not None and not isinstance(label_texts, Mapping):
        raise DataError("label_texts of a table must be a mapping from id to text")
    tables = open_frames(data)
    return _logged(from_tables(tables, options, label_texts=label_texts, name="table"))


def _from_texts(
    data: Any,
    labels: Any,
    classes: Sequence[Any] | None,
    label_texts: Mapping[Any, str] | Sequence[str] | None,
    options: TableOptions,
) -> Dataset:
    """Return texts and labels as a data set."""
    texts = as_texts(data, name="data")
    if labels is None:
        raise DataError(
            "texts are given without labels; pass a list of labels for each text, as in "
            "train(texts, labels)"
        )
    if options.text_columns or options.label_column is not None or options.label_columns:
        raise DataError("a column is named, but texts and labels have no columns")
    labels = _plain(labels)
    column = None if classes is not None else _column_of_labels(labels)
    if column is None:
        _refuse(options.separator, "separator", "the labels are lists or a matrix")
        return Dataset.from_lists(texts, labels, classes=classes, label_texts=label_texts)
    if len(column) != len(texts):
        raise DataError(f"{len(texts)} texts but labels for {len(column)}; there must be as many")
    if label_texts is not None and not isinstance(label_texts, Mapping):
        raise DataError("label_texts must be a mapping from id to text when labels are text")
    tables = open_frames({"text": texts, "labels": column})
    named = replace(options, text_columns=("text",), label_column="labels")
    return from_tables(tables, named, label_texts=label_texts, name="texts")


def _names_columns(labels: Any) -> bool:
    """Return whether labels of a table are the name of a column, or a list of names."""
    several = isinstance(labels, list | tuple) and bool(labels)
    return isinstance(labels, str) or (several and all(isinstance(each, str) for each in labels))


def is_table(data: Any) -> bool:
    """Return whether a value is a table: a data frame, or a dict of columns or splits."""
    return is_frame(data) or isinstance(data, Mapping)


def _refuse(value: Any, name: str, reason: str) -> None:
    if value is not None:
        raise DataError(f"{name} is given, but {reason}")


def _plain(labels: Any) -> Any:
    """Return a column (pandas, polars, Arrow, a one-dimensional array) as a list."""
    if hasattr(labels, "columns") or len(getattr(labels, "shape", (0,))) != 1:
        return labels
    for method in ("to_pylist", "to_list", "tolist"):
        if callable(getattr(labels, method, None)):
            return getattr(labels, method)()
    return labels


def _column_of_labels(labels: Any) -> list[str | int] | None:
    """Return labels that are one for each text, as a column of a table holds them."""
    if not isinstance(labels, list | tuple) or not labels:
        return None
    return list(labels) if {type(value) for value in labels} <= {str, int} else None


def _logged(data: Dataset) -> Dataset:
    for note in data.notes:
        logger.info(note)
    return data
