"""The content of a store at one moment, as an immutable value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.store.checks import text_digest
from umpteen.store.chunks import ChunkedList
from umpteen.store.damage import Damage
from umpteen.store.labels import AddedLabels, grown_labels

ROW_TYPE = np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class StoredExamples:
    """Labelled texts, one position per distinct text, in the order of their first addition.

    A text keeps its position for ever; adding it again changes its labels and its revision only.
    Vectors of texts can therefore be kept in an array that only grows. Texts are read on demand
    with ``ChangeStore.example_texts``.
    """

    digests: ChunkedList[bytes]
    """SHA-256 of each text; empty for an example that cannot be read."""
    packed_rows: ChunkedList[bytes]
    """Label rows of each example, as little-endian int64."""
    revisions: ChunkedList[int]
    """Revision at which each example got its labels."""
    positions: dict[bytes, int]
    """From digest to position; shared between states, so it may hold later examples too."""

    @classmethod
    def empty(cls) -> StoredExamples:
        """Return no examples."""
        return cls(ChunkedList(), ChunkedList(), ChunkedList(), {})

    def __len__(self) -> int:
        return len(self.digests)

    def find(self, text: str) -> int | None:
        """Return the position of the example with exactly this text, or None."""
        if not len(self):
            return None
        position = self.positions.get(text_digest(text))
        return position if position is not None and position < len(self) else None

    def rows_of(self, position: int) -> NDArray[np.int64]:
        """Return the label rows of one example."""
        return np.frombuffer(self.packed_rows[position], ROW_TYPE).astype(np.int64, copy=False)

    def rows_of_some(self, positions: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the label rows of some examples, one after the other, and how many each has."""
        packed = [self.packed_rows[position] for position in positions]
        sizes = np.fromiter(map(len, packed), np.int64, len(packed))
        rows = np.frombuffer(b"".join(packed), ROW_TYPE).astype(np.int64, copy=False)
        return rows, sizes // ROW_TYPE.itemsize

    def label_rows(
        self, start: int = 0, stop: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the label rows of a range of examples in CSR form.

        Returns:
            ``indptr`` (n + 1,) and ``indices`` (pairs,).
        """
        packed = self.packed_rows[start : len(self) if stop is None else stop]
        indptr = np.zeros(len(packed) + 1, np.int64)
        np.cumsum([len(rows) // ROW_TYPE.itemsize for rows in packed], out=indptr[1:])
        indices = np.frombuffer(b"".join(packed), ROW_TYPE).astype(np.int64, copy=False)
        return indptr, indices


@dataclass(frozen=True, eq=False)
class StoreState:
    """Labels, retirements and examples of one moment; it never changes.

    States share what they have in common, so a state costs in proportion to what is new in it.
    """

    trained: LabelSet
    """The labels of the training."""
    store_id: str
    """Identifies one history of changes; empty where nothing has ever been changed."""
    revision: int
    """Number of changes granted so far; rises by one with each change."""
    added: AddedLabels
    """Labels added since the training."""
    retired_rows: NDArray[np.int64]
    """Rows of retired labels, ascending; trained and added labels alike."""
    examples: StoredExamples
    damage: Damage | None = None
    """Why changes are refused, in a store that was opened with ``tolerant=True``."""

    @classmethod
    def empty(cls, trained: LabelSet, damage: Damage | None = None) -> StoreState:
        """Return the state of a run without changes."""
        none = _frozen(np.zeros(0, np.int64))
        return cls(trained, "", 0, AddedLabels.empty(), none, StoredExamples.empty(), damage)

    @cached_property
    def labels(self) -> LabelSet:
        """The trained labels followed by the added ones, retired ones included."""
        return grown_labels(self.trained, self.added)

    @property
    def n_labels(self) -> int:
        """Number of rows: trained and added labels, retired ones included."""
        return len(self.trained) + len(self.added)

    @cached_property
    def allowed(self) -> NDArray[np.bool_] | None:
        """(n_labels,) False for retired labels; None where no label is retired."""
        if not len(self.retired_rows):
            return None
        allowed = np.ones(self.n_labels, np.bool_)
        allowed[self.retired_rows] = False
        return _frozen(allowed)

    @property
    def retired_ids(self) -> list[str]:
        """Ids of the retired labels, by row."""
        ids = self.labels.ids
        return [ids[row] for row in self.retired_rows.tolist()]

    def is_retired(self, row: int) -> bool:
        """Return whether the label of a row is retired."""
        place = int(np.searchsorted(self.retired_rows, row))
        return place < len(self.retired_rows) and int(self.retired_rows[place]) == row

    def example_label_ids(self, position: int) -> list[str]:
        """Return the label ids of one example."""
        ids = self.labels.ids
        return [ids[row] for row in self.examples.rows_of(position).tolist()]


def with_retirements(
    retired_rows: NDArray[np.int64], changes: dict[int, bool]
) -> NDArray[np.int64]:
    """Return sorted retired rows after some labels were retired (True) or restored (False)."""
    if not changes:
        return retired_rows
    touched = np.array(sorted(changes), np.int64)
    now = np.array([changes[row] for row in touched.tolist()], np.bool_)
    places = np.searchsorted(retired_rows, touched)
    known = np.zeros(len(touched), np.bool_)
    inside = places < len(retired_rows)
    known[inside] = retired_rows[places[inside]] == touched[inside]
    kept = np.delete(retired_rows, places[known])
    new = touched[now]
    return _frozen(np.insert(kept, np.searchsorted(kept, new), new))


def _frozen(array: NDArray) -> NDArray:
    array.flags.writeable = False
    return array
