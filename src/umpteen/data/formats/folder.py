"""What the folders of all formats share: finding files, dataset.json and the filter files."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import SPLITS, Dataset, Propensity, Split
from umpteen.data.formats.lines import STDIN, read_lines, shown, write_lines
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.files import read_json, write_json

SETTINGS = "dataset.json"

# Two families of names are in use; the first of each is the one we write.
FILTERS = {
    "train": ("filter_labels_train.txt", "trn_filter_labels.txt"),
    "validation": (
        "filter_labels_validation.txt",
        "filter_labels_dev.txt",
        "filter_labels_val.txt",
        "dev_filter_labels.txt",
        "val_filter_labels.txt",
    ),
    "test": ("filter_labels_test.txt", "tst_filter_labels.txt"),
}

Names = Mapping[str, Sequence[str]]
STEMS = {"train": ("train",), "validation": ("validation", "dev", "val"), "test": ("test",)}
"""What the file of each split may be called, without its end."""


def find(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the files of a folder that have one of the names, with or without ``.gz``."""
    candidates = [folder / f"{name}{end}" for name in names for end in ("", ".gz")]
    return [path for path in candidates if path.exists()]


def find_one(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the file with one of the names, or None.

    Raises:
        DataError: If there are several, since the choice is ambiguous.
    """
    found = find(folder, names)
    if len(found) > 1:
        listed = " and ".join(path.name for path in found)
        raise DataError(f"{listed} are the same part of the data; keep one of them", path=folder)
    return found[0] if found else None


def require_one(folder: Path, names: Sequence[str], what: str) -> Path:
    """Return the file with one of the names.

    Raises:
        DataError: If it is missing or there are several.
    """
    path = find_one(folder, names)
    if path is None:
        raise DataError(
            f"{what} are missing; looked for {' or '.join(names)}, plain or .gz", path=folder
        )
    return path


def file_names(*suffixes: str, stems: Names = STEMS) -> dict[str, tuple[str, ...]]:
    """Return what the file of each split may be called.

    Example:
        >>> file_names(".csv")["validation"]
        ('validation.csv', 'dev.csv', 'val.csv')
    """
    return {
        split: tuple(f"{stem}{suffix}" for suffix in suffixes for stem in names)
        for split, names in stems.items()
    }


def find_splits(path: Path, names: Names) -> dict[str, Path]:
    """Return where each split's queries are; a single file (or ``-``) is a train split.

    Raises:
        DataError: If the folder has none of them.
    """
    if path == STDIN or path.is_file():
        return {"train": path}
    found = {split: find_one(path, names[split]) for split in SPLITS if split in names}
    if not any(found.values()):
        looked = ", ".join(name for options in names.values() for name in options)
        raise DataError(f"no queries are here; looked for {looked}, plain or .gz", path=path)
    return {split: file for split, file in found.items() if file is not None}


def has_any(path: Path, names: Names) -> bool:
    """Return whether a folder holds any of the files."""
    return path.is_dir() and any(find(path, options) for options in names.values())


def finish(
    path: Path, labels: LabelSet, splits: Mapping[str, Split], notes: Sequence[str] = ()
) -> Dataset:
    """Put labels and splits together with what dataset.json says, if there is one.

    Args:
        path: The folder or file that was read.
        labels: The labels.
        splits: The splits, filters included.
        notes: How the data was read.

    Returns:
        The data set; without a dataset.json its name is that of the folder or file.

    Raises:
        DataError: If dataset.json is damaged or a value is not of the right kind.
    """
    name, propensity = _default_name(path), Propensity()
    settings = path / SETTINGS
    if path != STDIN and path.is_dir() and settings.exists():
        value = read_json(settings, error=DataError)
        if not isinstance(value, dict):
            raise DataError("expected a JSON object with name and propensity", path=settings)
        name = value.get("name", name)
        if not isinstance(name, str):
            raise DataError("'name' must be a string", path=settings)
        propensity = _propensity(value.get("propensity", {}), settings)
    return Dataset(labels, dict(splits), propensity, name, tuple(notes))


def write_shared(dataset: Dataset, folder: Path) -> None:
    """Write dataset.json and the filter files."""
    constants = {"a": dataset.propensity.a, "b": dataset.propensity.b}
    write_json(folder / SETTINGS, {"name": dataset.name, "propensity": constants})
    for name, split in dataset.splits.items():
        if len(split.filters):
            pairs = (f"{row} {label}" for row, label in split.filters.tolist())
            write_lines(folder / FILTERS[name][0], pairs)


def read_filters(path: Path, split: str, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Return the (row, label row) pairs of a split that count neither as right nor as wrong.

    Args:
        path: The folder; a single file has no filters.
        split: Which split.
        shape: Its number of queries and of labels.

    Returns:
        (F, 2) pairs, none if there is no file.

    Raises:
        DataError: If a line is not two numbers or points outside the data.
    """
    file = find_one(path, FILTERS[split]) if path.is_dir() else None
    pairs = array("q")
    if file is None:
        return np.zeros((0, 2), np.int64)
    for number, line in read_lines(file):
        words = line.split()
        if len(words) != 2 or not all(is_count(word) for word in words):
            raise DataError(
                f"{line[:40]!r} is not a pair of a row and a label, both counted from 0",
                path=file,
                line=number,
            )
        row, label = (int(word) for word in words)
        if row >= shape[0] or label >= shape[1]:
            raise DataError(
                f"the pair {row} {label} is out of range; there are {shape[0]} queries and "
                f"{shape[1]} labels, counted from 0",
                path=file,
                line=number,
            )
        pairs.extend((row, label))
    return np.array(pairs, np.int64).reshape(-1, 2)


def is_count(word: str) -> bool:
    """Return whether a word is a number from 0 that fits 64 bits.

    ``int`` takes far stranger ones.
    """
    return word.isascii() and word.isdigit() and len(word) <= 18


def _default_name(path: Path) -> str:
    if path == STDIN:
        return "data"
    if path.is_dir():
        return path.resolve().name or "data"
    return path.name.removesuffix(".gz").rpartition(".")[0] or shown(path)


def _propensity(value: Any, path: Path) -> Propensity:
    if not isinstance(value, dict):
        raise DataError("'propensity' must be an object with the numbers a and b", path=path)
    constants = {}
    for key, default in (("a", Propensity.a), ("b", Propensity.b)):
        number = value.get(key, default)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise DataError(f"propensity {key!r} must be a number", path=path)
        # Zero b would divide by zero for a label without training queries.
        if not 0 < number < 1000:
            raise DataError(f"propensity {key!r} must be above 0 and below 1000", path=path)
        constants[key] = float(number)
    return Propensity(**constants)
