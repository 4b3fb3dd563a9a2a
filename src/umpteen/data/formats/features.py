"""What a data set may have and a format may not hold, and the sentence for what gets lost."""

from __future__ import annotations

import numpy as np

from umpteen.data.dataset import Dataset

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
