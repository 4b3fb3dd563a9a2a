"""Labels as scikit-learn users give them, as one sparse matrix and the labels of its columns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from umpteen.data.dataset import targets_from_rows
from umpteen.errors import DataError

DENSE, SPARSE, LISTS, SINGLE = "dense", "sparse", "lists", "single"
"""Forms of labels: an indicator array, a sparse indicator matrix, lists, one label for each text.
"""
COLUMN_VECTOR = (
    "A column-vector y was passed when a 1d array was expected; it is read as one label for each "
    "text. Pass y.ravel()."
)


class InputError(DataError, ValueError):
    """Texts or labels that the estimator cannot use; scikit-learn expects a ``ValueError``."""


@dataclass(frozen=True)
class Targets:
    """The labels of texts."""

    form: str
    """One of the forms above."""
    classes: NDArray[Any]
    """(L,) the labels, in the order of the columns."""
    matrix: sp.csr_matrix
    """(N, L) ones where a text has a label."""


def read_targets(y: Any) -> Targets:
    """Read labels in any form.

    Args:
        y: An indicator matrix (array, data frame or sparse), a list of labels for each text, or
            one label for each text.

    Returns:
        The labels. The columns of a matrix are called by their number, those of a data frame by
        their name; other labels are sorted.

    Raises:
        InputError: If it has none of these forms.
    """
    if y is None:
        raise InputError("requires y to be passed, but the target y is None")
    if sp.issparse(y):
        return Targets(SPARSE, np.arange(y.shape[1]), _checked(sp.csr_matrix(y)))
    if hasattr(y, "columns") and hasattr(y, "to_numpy"):
        return Targets(DENSE, as_classes(list(y.columns)), _dense(np.asarray(y.to_numpy())))
    y = as_array(y)
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1 and not _is_indicator(y):
        warnings.warn(COLUMN_VECTOR, DataConversionWarning, stacklevel=3)
        y = y.ravel()
    rows = y.tolist() if hasattr(y, "tolist") else list(y)
    array = y if isinstance(y, np.ndarray) else None
    if (array is not None and array.ndim == 2) or _looks_like_indicator(rows):
        dense = np.asarray(rows if array is None else array)
        return Targets(DENSE, np.arange(dense.shape[1]), _dense(dense))
    if array is not None and array.ndim != 1:
        raise InputError(f"y has the shape {array.shape}; give one or two dimensions")
    if all(_is_label(label) for label in rows):
        classes = _sorted(rows)
        return Targets(SINGLE, classes, to_matrix([[label] for label in rows], classes))
    lists = _as_lists(rows)
    classes = _sorted(label for row in lists for label in row)
    return Targets(LISTS, classes, to_matrix(lists, classes))


def as_array(value: Any) -> Any:
    """Return an object that can only become an array as one; everything else as it is."""
    only = hasattr(value, "__array__") and not isinstance(value, Iterable)
    return np.asarray(value) if only else value


def aligned(y: Any, classes: NDArray[Any]) -> sp.csr_matrix:
    """Return labels as columns of known classes.

    Labels that are not among the classes follow in further columns.

    Args:
        y: The labels, in any form.
        classes: (L,) those of the estimator.

    Returns:
        (N, L or more).

    Raises:
        InputError: If a matrix has another number of columns.
    """
    found = read_targets(y)
    if found.form in (DENSE, SPARSE) and not hasattr(y, "columns"):
        if found.matrix.shape[1] != len(classes):
            raise InputError(
                f"y has {found.matrix.shape[1]} columns, but the estimator has {len(classes)} "
                "classes"
            )
        return found.matrix
    known = {label: row for row, label in enumerate(classes.tolist())}
    columns = np.array(
        [known.setdefault(label, len(known)) for label in found.classes.tolist()], np.int64
    )
    pairs = found.matrix.tocoo()
    shape = (found.matrix.shape[0], len(known))
    return sp.csr_matrix((pairs.data, (pairs.row, columns[pairs.col])), shape=shape)


def to_matrix(lists: Sequence[Sequence[Any]], classes: NDArray[Any]) -> sp.csr_matrix:
    """Return lists of labels as a matrix of ones."""
    rows = {label: row for row, label in enumerate(classes.tolist())}
    return targets_from_rows([[rows[label] for label in row] for row in lists], len(classes))


def as_classes(labels: Sequence[Any]) -> NDArray[Any]:
    """Return labels as an array: of strings or numbers where all are, else of objects.

    Raises:
        InputError: If two labels are the same as text.
    """
    if len({str(label) for label in labels}) != len(labels):
        seen: set[str] = set()
        double = next(x for x in labels if str(x) in seen or seen.add(str(x)))  # type: ignore[func-returns-value]
        raise InputError(f"the label {double!r} is there twice, as another type or spelling")
    array = np.array(labels) if len({type(label) for label in labels}) == 1 else None
    if array is None or array.ndim != 1:
        array = np.empty(len(labels), object)
        array[:] = labels
    return array


def _sorted(labels: Iterable[Any]) -> NDArray[Any]:
    unique = list(dict.fromkeys(labels))
    try:
        unique.sort()
    except TypeError:
        unique.sort(key=str)
    return as_classes(unique)


def _is_label(value: Any) -> bool:
    """Return whether a value is one label: text, a whole number or a truth value."""
    if isinstance(value, float) and not value.is_integer():
        raise InputError(
            f"y holds {value!r}; labels are text or whole numbers, without missing values "
            "(Unknown label type: continuous)"
        )
    return isinstance(value, str | int | float | np.integer | np.bool_)


def _as_lists(rows: Sequence[Any]) -> list[list[Any]]:
    lists = []
    for place, row in enumerate(rows):
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise InputError(f"y[{place}] is {row!r:.40}; give a list of labels for each text")
        labels = row.tolist() if isinstance(row, np.ndarray) else list(row)
        if not all(_is_label(label) for label in labels):
            raise InputError(f"y[{place}] is {row!r:.40}; labels are text or whole numbers")
        lists.append(labels)
    return lists


def _looks_like_indicator(rows: Sequence[Any]) -> bool:
    """Return whether nested lists hold 0 and 1 in rows of the same length, at least 2."""
    if not rows or not all(isinstance(row, list | tuple | np.ndarray) for row in rows):
        return False
    width = len(rows[0])
    if width < 2 or any(len(row) != width for row in rows):
        return False
    numbers = int | np.integer | np.bool_
    return all(isinstance(value, numbers) and value in (0, 1) for row in rows for value in row)


def _is_indicator(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "biuf" and bool(np.isin(array, (0, 1)).all())


def _dense(array: NDArray[Any]) -> sp.csr_matrix:
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(f"y is an array of {array.dtype}; an indicator matrix holds 0 and 1")
    return _checked(sp.csr_matrix(array))


def _checked(matrix: sp.csr_matrix) -> sp.csr_matrix:
    matrix = sp.csr_matrix(matrix, dtype=np.float32, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not (matrix.data == 1).all():
        wrong = matrix.data[matrix.data != 1][0]
        raise InputError(f"y holds {wrong:g}; an indicator matrix holds 0 and 1")
    return matrix
