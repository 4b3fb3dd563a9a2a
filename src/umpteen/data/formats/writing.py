"""Data sets as records, the reverse of ``records``: what the reading side takes back unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats.records import Fields


def query_records(split: Split, ids: Sequence[Any], fields: Fields) -> Iterator[dict[str, Any]]:
    """Yield the records that ``read_queries`` turns into this split.

    Args:
        split: The queries.
        ids: What to call each label row.
        fields: The names of the parts; ``fields.title[0]`` is used alone, ``[-1]`` with content.

    Yields:
        One record per query; relevances only if one of them is not 1.
    """
    weighted = bool((split.targets.data != 1).any())
    bounds = split.targets.indptr.tolist()
    for row, title in enumerate(split.titles):
        start, stop = bounds[row], bounds[row + 1]
        record: dict[str, Any] = {}
        if split.ids is not None:
            record[fields.id] = split.ids[row]
        record |= _text_fields(title, split.contents, row, fields)
        record[fields.labels] = [ids[label] for label in split.targets.indices[start:stop].tolist()]
        if weighted:
            record[fields.relevance] = relevances(split, start, stop)
        yield record


def label_records(
    dataset: Dataset, fields: Fields, *, metadata: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the records that ``read_labels`` turns into the label set, with metadata if asked."""
    labels = dataset.labels
    for row, title in enumerate(labels.titles):
        record: dict[str, Any] = {fields.id: labels.ids[row]}
        record |= _text_fields(title, labels.contents, row, fields)
        if metadata and labels.metadata is not None and labels.metadata[row]:
            record[fields.metadata] = dict(labels.metadata[row])
        yield record


def relevances(split: Split, start: int, stop: int) -> list[float]:
    """Return some relevances with as few digits as float32 needs.

    Example:
        >>> import scipy.sparse as sp
        >>> relevances(Split(["a"], sp.csr_matrix(np.array([[0.3]], np.float32))), 0, 1)
        [0.3]
    """
    return [float(str(value)) for value in split.targets.data[start:stop].astype(np.float32)]


def _text_fields(
    title: str, contents: Sequence[str] | None, row: int, fields: Fields
) -> dict[str, str]:
    if contents is None:
        return {fields.title[0]: title}
    return {fields.title[-1]: title, fields.content: contents[row]}
