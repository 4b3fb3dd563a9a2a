"""Data sets from Python values: lists of label ids, sparse matrices, indicator arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.dataset import Dataset, Propensity, Split, targets_from_rows
from umpteen.data.formats.label_separators import is_missing
from umpteen.data.labels import LabelSet
from umpteen.display import counted
from umpteen.errors import DataError

Given = list[tuple[str, Sequence[str], Any]]


def dataset_from_lists(
    given: Given,
    label_texts: Mapping[Any, str] | Sequence[str] | None,
    classes: Sequence[Any] | None,
    propensity: Propensity,
    name: str,
) -> Dataset:
    """Make the data set of ``Dataset.from_lists``.

    Args:
        given: Split, texts and labels of each split.
        label_texts: Id to text, or texts in the order of the columns.
        classes: Label ids in the order of the columns.
        propensity: Constants for propensity-scored metrics.
        name: What to call the data.

    Raises:
        DataError: If the values do not fit together.
    """
    given = [(split, _listed(texts), _listed(labels)) for split, texts, labels in given]
    for split, texts, labels in given:
        _check_given(split, texts, labels)
    if classes is None:
        classes = next((_columns_of(rows) for _, _, rows in given if _columns_of(rows)), None)
    given = [(split, texts, _as_matrix(rows, classes, split)) for split, texts, rows in given]
    label_set = _label_set([rows for _, _, rows in given], label_texts, classes)
    splits: dict[str, Split] = {}
    notes: list[str] = []
    for split, texts, rows in given:
        splits[split] = Split([str(text) for text in texts], _matrix(rows, label_set, split))
        if not sp.issparse(rows):
            named = sum(len(_ids_of(row)) for row in rows)
            repeated = named - splits[split].targets.nnz
            if repeated:
                notes.append(f"{split}: {counted(repeated, 'label')} twice in a row, kept once")
    return Dataset(label_set, splits, propensity, name, tuple(notes))


def is_indicator(labels: Any) -> bool:
    """Return whether labels have the form of an indicator array: 0 and 1, all rows as long.

    Example:
        >>> is_indicator([[0, 1], [1, 1]]), is_indicator([["a"], ["b"]]), is_indicator([[0], [1]])
        (True, False, False)
    """
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    if isinstance(labels, np.ndarray):
        return labels.ndim == 2 and labels.dtype.kind in "biuf"
    rows = list(labels)
    if not rows or not all(isinstance(row, list | tuple | np.ndarray) for row in rows):
        return False
    width = len(rows[0])
    if width < 2 or any(len(row) != width for row in rows):
        return False
    values = {value for row in rows for value in row if not isinstance(value, str)}
    return values <= {0, 1} and not any(isinstance(value, str) for row in rows for value in row)


def _columns_of(labels: Any) -> list[Any] | None:
    """Return the column names of an indicator frame."""
    return list(labels.columns) if hasattr(labels, "columns") and hasattr(labels, "shape") else None


def _as_matrix(labels: Any, classes: Sequence[Any] | None, split: str) -> Any:
    """Return an indicator array as a sparse matrix; other labels as they are."""
    if sp.issparse(labels):
        if classes is not None and labels.shape[1] != len(classes):
            raise DataError(f"{labels.shape[1]} label columns but {len(classes)} classes")
        return labels
    if not is_indicator(labels):
        return labels
    dense = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    if classes is None:
        raise DataError(
            f"the {split} labels are an array of shape {dense.shape}; expected a list of label ids "
            "for each text. For an indicator matrix give the labels of the columns as classes="
        )
    if dense.shape[1] != len(classes):
        raise DataError(
            f"the {split} labels have {counted(dense.shape[1], 'column')}, but classes has "
            f"{counted(len(classes), 'name')}"
        )
    return sp.csr_matrix(dense.astype(np.float32))


def _label_set(given: Sequence[Any], label_texts: Any, classes: Sequence[Any] | None) -> LabelSet:
    if any(map(sp.issparse, given)):
        n = given[0].shape[1] if sp.issparse(given[0]) else -1
        if not all(sp.issparse(rows) and rows.shape[1] == n for rows in given):
            raise DataError("label matrices must come for every split, with the same columns")
        keys = list(range(n)) if classes is None else list(classes)
        ids = [str(key) for key in keys]
        if label_texts is None:
            return LabelSet(ids, ids)
        if isinstance(label_texts, Mapping):
            label_texts = [
                label_texts.get(key, label_texts.get(str(key), str(key))) for key in keys
            ]
        if len(label_texts) != n:
            raise DataError(f"{n} label columns but {len(label_texts)} label texts")
        return LabelSet(ids, [str(text) for text in label_texts])
    order: dict[str, None] = {str(key): None for key in classes or ()}
    if isinstance(label_texts, Mapping):
        order.update((str(key), None) for key in label_texts)
    for rows in given:
        for row in rows:
            if isinstance(row, str) or not isinstance(row, Iterable):
                raise DataError(f"labels must be a list for each text, got {row!r}")
            order.update((label, None) for label in _ids_of(row))
    ids = list(order)
    names = (
        {str(k): str(v) for k, v in label_texts.items()} if isinstance(label_texts, Mapping) else {}
    )
    if label_texts is not None and not isinstance(label_texts, Mapping):
        raise DataError("label_texts must be a mapping from id to text when labels are lists")
    return LabelSet(ids, [names.get(i, i) for i in ids])


def _ids_of(row: Iterable[Any]) -> list[str]:
    """Return the label ids of a text; missing values and empty strings are left out, as in a table.

    Raises:
        DataError: If a label is itself a collection.
    """
    if set(map(type, row)) <= {str}:
        return [label for label in row if label]
    for label in row:
        if isinstance(label, list | tuple | set | Mapping | np.ndarray):
            raise DataError(f"a label must be a string or a number, got {label!r:.60}")
    return [str(label) for label in row if not is_missing(label) and label != ""]


def _listed(values: Any) -> Any:
    """Return what an iterator yields as a list, everything else as it is."""
    return list(values) if isinstance(values, Iterator) else values


def _check_given(split: str, texts: Any, labels: Any) -> None:
    if isinstance(texts, str):
        raise DataError(f"{split} texts must be a list of strings, got one string")
    if labels is None:
        raise DataError(f"{split} texts are given without labels; give a list of labels for each")
    if isinstance(labels, str):
        raise DataError(f"{split} labels must be a list for each text, got one string")
    n = labels.shape[0] if sp.issparse(labels) else len(labels)
    if n != len(texts):
        raise DataError(f"{len(texts)} {split} texts but labels for {n}; there must be as many")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"{split} text {row} is {type(text).__name__}; expected a string")


def _matrix(rows: Any, labels: LabelSet, split: str) -> sp.csr_matrix:
    if sp.issparse(rows):
        # A copy: what follows sorts and drops in place, and the caller's matrix is the caller's.
        matrix = sp.csr_matrix(rows, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if not ((matrix.data > 0) & (matrix.data <= 1)).all():
            raise DataError(f"the {split} label matrix must hold relevances in (0, 1]")
    else:
        found = [[labels.rows[label] for label in _ids_of(row)] for row in rows]
        matrix = targets_from_rows(found, len(labels))
    if not matrix.nnz:
        raise DataError(f"no {split} text has any label; at least one positive is needed")
    return matrix
