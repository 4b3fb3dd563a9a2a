"""Data sets as records, the reverse of ``records``, and what a format cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats.records import Fields

ALL = frozenset(
    {
        "label ids",
        "query ids",
        "contents",
        "label metadata",
        "line breaks",
        "tabs",
        "relevance",
        "filters",
        "validation",
    }
)
_LOST = {
    "label ids": "label ids (labels are known by their row)",
    "query ids": "query ids",
    "contents": "contents apart from titles (they are joined to one text)",
    "label metadata": "metadata of labels (broader labels, notations)",
    "tabs": "tabs inside texts (they become spaces)",
    "line breaks": "line breaks inside texts (they become spaces)",
    "relevance": "relevances other than 1",
    "filters": "filter pairs",
    "validation": "a validation split",
}


def query_records(split: Split, ids: Sequence[Any], fields: Fields) -> Iterator[dict[str, Any]]:
    """Yield the records that ``read_queries`` turns into this split.

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


def features(dataset: Dataset) -> frozenset[str]:
    """Return the parts of ``ALL`` that this data set really has."""
    labels, splits = dataset.labels, list(dataset.splits.values())
    texts = [*labels.titles, *(labels.contents or ())]
    for split in splits:
        texts += [*split.titles, *(split.contents or ())]
    has = {
        "label ids": any(name != str(row) for row, name in enumerate(labels.ids)),
        "query ids": any(split.ids is not None for split in splits),
        "contents": labels.contents is not None or any(s.contents is not None for s in splits),
        "label metadata": labels.metadata is not None,
        "tabs": any("\t" in text for text in texts),
        "line breaks": any("\n" in text or "\r" in text for text in texts),
        "relevance": any(bool(np.any(split.targets.data != 1)) for split in splits),
        "filters": any(len(split.filters) for split in splits),
        "validation": "validation" in dataset,
    }
    return frozenset(name for name, present in has.items() if present)


def losses(dataset: Dataset, holds: frozenset[str]) -> str:
    """Return what a format that holds only these features loses of a data set; empty if nothing.

    Example:
        >>> losses(Dataset.from_lists(["a"], [["x"]]), ALL - {"label ids", "filters"})
        'label ids (labels are known by their row)'
    """
    lost = features(dataset) - holds
    return "; ".join(sentence for name, sentence in _LOST.items() if name in lost)
