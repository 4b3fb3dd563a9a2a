"""Labels to look through: by words, a page at a time, with how frequent each is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.live.changes import LabelChanges


@dataclass(frozen=True)
class ListedLabel:
    """A label as it is shown."""

    id: str
    text: str
    count: int
    """Training queries that have it; 0 for an added label."""
    state: str
    """``trained``, ``added`` or ``retired``."""


@dataclass(frozen=True)
class Page:
    """Some labels of all that were asked for."""

    labels: list[ListedLabel]
    total: int

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"labels": [asdict(label) for label in self.labels], "total": self.total}


def list_labels(
    changes: LabelChanges,
    counts: NDArray[np.int64],
    *,
    search: str = "",
    changed: bool = False,
    order: str = "row",
    offset: int = 0,
    limit: int = 50,
) -> Page:
    """A page of labels.

    Args:
        changes: The labels with their changes.
        counts: (L,) training queries of each trained label.
        search: Words that must all be in a label's id or text, in any case.
        changed: Whether only added and retired labels are wanted.
        order: ``row``, or ``frequent`` or ``rare`` for the most or least training queries first.
        offset: Labels to pass over.
        limit: Labels to return at most.

    Returns:
        The page, and how many labels there are in all.
    """
    rows = np.fromiter(_matching(changes, search, changed), np.int64)
    if order != "row":
        known = np.concatenate([counts, np.zeros(len(changes.added), np.int64)])[rows]
        rows = rows[np.argsort(-known if order == "frequent" else known, kind="stable")]
    chosen = rows[offset : offset + limit].tolist()
    return Page([show(changes, counts, row) for row in chosen], len(rows))


def show(changes: LabelChanges, counts: NDArray[np.int64], row: int) -> ListedLabel:
    """One label as it is shown."""
    n = len(changes.trained)
    if row < n:
        label_id, text = changes.trained.ids[row], changes.trained.texts[row]
        count, state = int(counts[row]), "trained"
    else:
        label_id, text = changes.added[row - n].id, changes.added[row - n].text
        count, state = 0, "added"
    return ListedLabel(label_id, text, count, "retired" if label_id in changes.retired else state)


def _matching(changes: LabelChanges, search: str, changed: bool) -> Iterator[int]:
    n = len(changes.trained)
    if changed:
        old = sorted(row for i in changes.retired if (row := changes.row(i)) < n)
        candidates: Iterator[int] = chain(old, range(n, len(changes)))
    else:
        candidates = iter(range(len(changes)))
    words = search.casefold().split()
    if not words:
        return candidates
    trained, added = changes.trained, changes.added

    def spoken(row: int) -> str:
        if row < n:
            return f"{trained.ids[row]} {trained.titles[row]}".casefold()
        return f"{added[row - n].id} {added[row - n].text}".casefold()

    return (row for row in candidates if _has_all(spoken(row), words))


def _has_all(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)
