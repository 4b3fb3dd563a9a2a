"""What Annif's formats share: records become a data set, over a vocabulary where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.records import Fields, LabelNames, read_queries
from umpteen.data.formats.targets import TargetRows, Unit
from umpteen.data.vocabulary import (
    Vocabulary,
    VocabularyNames,
    find_vocabulary,
    read_vocabulary,
)

Records = Iterator[tuple[int, dict[str, Any]]]
FIELDS = Fields()


def as_dataset(
    path: Path,
    files: Mapping[str, Path],
    records: Mapping[str, Records],
    unit: Unit,
    vocabulary: Vocabulary | None,
) -> Dataset:
    """Return the data set of some records.

    Args:
        path: The folder or file.
        files: Where the records of each split are from, for messages.
        records: By split, numbered records with ``text``, ``labels`` and ``id``.
        unit: What the numbers count.
        vocabulary: The labels; those of the vocabulary in the folder, if any, for None.

    Returns:
        The data set.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    if vocabulary is None and path.is_dir() and (found := find_vocabulary(path)) is not None:
        vocabulary = read_vocabulary(found)
    names = LabelNames() if vocabulary is None else VocabularyNames(vocabulary)
    queries = {
        name: read_queries(rows, TargetRows(files[name], unit=unit), names, FIELDS)
        for name, rows in records.items()
    }
    labels = names.label_set()
    notes = () if isinstance(names, LabelNames) else names.notes()
    splits = {name: each.split(name, path, labels) for name, each in queries.items()}
    return replace(shared.finish(path, labels, splits), notes=notes)
