"""Data sets as HTML tables, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umpteen.display import Cell, counted, html_table, shorten

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset, Split
    from umpteen.data.labels import LabelSet

ROWS, LABELS = 5, 8
"""Texts of a table, and labels of a text."""


def dataset_html(data: Dataset) -> str:
    """Return a table of the splits and one with the first texts."""
    rows: list[list[Cell]] = [
        [name, len(split), round(split.targets.nnz / max(1, len(split)), 2)]
        for name, split in data.splits.items()
    ]
    caption = f"{data.name}: {counted(len(data.labels), 'label')}"
    sizes = html_table(["split", "texts", "labels per text"], rows, caption=caption)
    first = next(iter(data.splits.values()), None)
    return sizes if first is None else sizes + split_html(first, data.labels)


def split_html(split: Split, labels: LabelSet | None = None) -> str:
    """Return a table with the first texts and their labels; rows where no names are known."""
    rows: list[list[Cell]] = []
    first = min(len(split), ROWS)
    for place in range(first):
        own = split.targets.indices[split.targets.indptr[place] : split.targets.indptr[place + 1]]
        names = [str(row) if labels is None else str(labels.ids[row]) for row in own[:LABELS]]
        more = [".."] if len(own) > LABELS else []
        shown = ", ".join([*(shorten(name, 40) for name in names), *more])
        rows.append([shorten(split.titles[place], 120), shown])
    left = len(split) - first
    more_texts = f"and {counted(left, 'text')} more" if left else ""
    return html_table(["text", "labels"], rows, more=more_texts)
