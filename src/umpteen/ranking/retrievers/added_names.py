"""The names of labels that were added after training, encoded once for all requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from umpteen.data.labels import LabelSet, join_texts
from umpteen.ranking.snapshot import Snapshot

Rows = TypeVar("Rows")


class AddedNames(Generic[Rows]):
    """Encoded names of the labels behind the trained ones; follows the snapshots.

    Args:
        which: What is read of a label, ``title`` or ``all``.
        nothing: The value for no labels.
        extended: From such a value and further names to a new value; the old one stays as it is.
    """

    def __init__(
        self, which: str, nothing: Rows, extended: Callable[[Rows, Sequence[str]], Rows]
    ) -> None:
        self._which = which
        self._nothing = nothing
        self._extended = extended
        self._lock = threading.Lock()
        self._latest: tuple[LabelSet | None, list[str], Rows] = (None, [], nothing)

    def of(self, snapshot: Snapshot) -> Rows:
        """Return the value for the labels that a snapshot adds."""
        labels, n = snapshot.labels, snapshot.n_trained
        if len(labels) == n:
            return self._nothing
        known, _, rows = self._latest
        if known is labels:
            return rows
        with self._lock:
            _, before, rows = self._latest
            contents = None if labels.contents is None else labels.contents[n:]
            names = join_texts(labels.titles[n:], contents, self._which)
            if names[: len(before)] != before:  # an older snapshot, or another store
                before, rows = [], self._nothing
            if len(names) > len(before):
                rows = self._extended(rows, names[len(before) :])
            self._latest = (labels, names, rows)
            return rows
