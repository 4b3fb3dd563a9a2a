"""Labels to look through: by words, a page at a time, with how frequent each is."""

from __future__ import annotations

import re
import weakref
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.live.changes import LabelChanges

_SPOKEN: dict[int, tuple[weakref.ref[LabelSet], str, NDArray[np.int64]]] = {}


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
    rows = _matching(changes, search, changed)
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


def _matching(changes: LabelChanges, search: str, changed: bool) -> NDArray[np.int64]:
    n = len(changes.trained)
    words = search.casefold().split()
    added = np.array(
        [
            n + place
            for place, label in enumerate(changes.added)
            if all(word in f"{label.id} {label.text}".casefold() for word in words)
        ],
        np.int64,
    )
    if changed:
        out = [row for i in changes.retired if i in changes and (row := changes.row(i)) < n]
        trained = np.array(sorted(out), np.int64)
    else:
        trained = np.arange(n)
    for word in words:
        trained = np.intersect1d(trained, _rows_with(word, *_spoken(changes.trained)))
    return np.concatenate([trained, added])


def _spoken(labels: LabelSet) -> tuple[str, NDArray[np.int64]]:
    """Ids and titles of all labels in one string, and where each label begins; made once."""
    known = _SPOKEN.get(id(labels))
    if known is None or known[0]() is not labels:
        lines = [f"{label_id} {title}\n".casefold()
                 for label_id, title in zip(labels.ids, labels.titles, strict=True)]  # fmt: skip
        starts = np.cumsum([0, *map(len, lines)])[:-1]
        known = (weakref.ref(labels), "".join(lines), starts)
        _SPOKEN.clear()  # a service has one run at a time
        _SPOKEN[id(labels)] = known
    return known[1], known[2]


def _rows_with(word: str, spoken: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels that hold a word, which has no blank in it and so lies within one label."""
    places = np.fromiter((m.start() for m in re.finditer(re.escape(word), spoken)), np.int64)
    return np.unique(np.searchsorted(starts, places, side="right") - 1)
