"""List labels: search by words, sort by training examples, one page at a time."""

from __future__ import annotations

import re
import weakref
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.store.state import StoreState

_SEARCH_TEXTS: dict[int, tuple[weakref.ref[LabelSet], str, NDArray[np.int64]]] = {}


@dataclass(frozen=True)
class LabelRow:
    """A label as it is shown to people."""

    id: str
    text: str
    count: int
    """Training texts with this label; 0 for an added label."""
    state: str
    """``trained``, ``added`` or ``retired``."""


@dataclass(frozen=True)
class Page:
    """One page of a list of labels."""

    labels: list[LabelRow]
    total: int
    """Number of labels on all pages."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"labels": [asdict(label) for label in self.labels], "total": self.total}


def list_labels(
    state: StoreState,
    counts: NDArray[np.int64],
    *,
    search: str = "",
    changed: bool = False,
    order: str = "row",
    offset: int = 0,
    limit: int = 50,
) -> Page:
    """Return a page of labels.

    Args:
        state: The labels with their changes.
        counts: (L,) training texts of each trained label.
        search: Words that must all occur in a label's id or text, in any case.
        changed: Whether to list added and retired labels only.
        order: ``row``, or ``frequent`` or ``rare`` for most or fewest training texts first.
        offset: Labels to skip.
        limit: Maximum number of labels to return.
    """
    if order == "row" and not changed and not search.split():
        # All labels, in their order: nothing to search or sort, however many they are.
        chosen = range(state.n_labels)[offset : offset + limit]
        return Page([show_label(state, counts, row) for row in chosen], state.n_labels)
    rows = _matching(state, search, changed)
    if order != "row":
        known = np.concatenate([counts, np.zeros(len(state.added), np.int64)])[rows]
        rows = rows[np.argsort(-known if order == "frequent" else known, kind="stable")]
    found = rows[offset : offset + limit].tolist()
    return Page([show_label(state, counts, row) for row in found], len(rows))


def show_label(state: StoreState, counts: NDArray[np.int64], row: int) -> LabelRow:
    """Return one label as it is shown to people."""
    n, labels = len(state.trained), state.labels
    kind = "retired" if state.is_retired(row) else "trained" if row < n else "added"
    return LabelRow(labels.ids[row], labels.titles[row], int(counts[row]) if row < n else 0, kind)


def _matching(state: StoreState, search: str, changed: bool) -> NDArray[np.int64]:
    n = len(state.trained)
    words = search.casefold().split()
    added = np.arange(n, n + len(state.added))
    if words:
        pairs = zip(state.added.ids, state.added.texts, strict=True)
        texts = [f"{label_id} {text}".casefold() for label_id, text in pairs]
        found = [all(word in text for word in words) for text in texts]
        added = added[np.array(found, np.bool_)]
    trained = state.retired_rows[state.retired_rows < n] if changed else np.arange(n)
    for word in words:
        trained = np.intersect1d(trained, _rows_with(word, *_search_text(state.trained)))
    return np.concatenate([trained, added])


def _search_text(labels: LabelSet) -> tuple[str, NDArray[np.int64]]:
    """Return ids and titles of all labels in one string, and where each begins; made once."""
    known = _SEARCH_TEXTS.get(id(labels))
    if known is None or known[0]() is not labels:
        pairs = zip(labels.ids, labels.titles, strict=True)
        lines = [f"{label_id} {title}\n".casefold() for label_id, title in pairs]
        starts = np.cumsum([0, *map(len, lines)])[:-1]
        known = (weakref.ref(labels), "".join(lines), starts)
        _SEARCH_TEXTS.clear()  # one run is listed at a time
        _SEARCH_TEXTS[id(labels)] = known
    return known[1], known[2]


def _rows_with(word: str, text: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of labels that contain a word; the word has no white space in it."""
    places = np.fromiter((m.start() for m in re.finditer(re.escape(word), text)), np.int64)
    return np.unique(np.searchsorted(starts, places, side="right") - 1)
