"""The trained labels followed by the added ones, as a label set that copies neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from umpteen.data.labels import LabelSet
from umpteen.store.chunks import ChunkedList


@dataclass(frozen=True, eq=False)
class AddedLabels:
    """Labels added after training, in their order; label i has the row ``n_trained + i``."""

    ids: ChunkedList[str]
    texts: ChunkedList[str]
    contents: ChunkedList[str]
    has_contents: bool
    positions: dict[str, int]
    """From id to position; shared between states, so it may hold later labels too."""

    @classmethod
    def empty(cls) -> AddedLabels:
        """Return no labels."""
        return cls(ChunkedList(), ChunkedList(), ChunkedList(), False, {})

    def __len__(self) -> int:
        return len(self.ids)

    def position(self, label_id: str) -> int | None:
        """Return the position of an id, or None."""
        position = self.positions.get(label_id)
        return position if position is not None and position < len(self.ids) else None

    def extended(self, ids: list[str], texts: list[str], contents: list[str]) -> AddedLabels:
        """Return the labels with more at the end."""
        if not ids:
            return self
        self.positions.update(zip(ids, range(len(self), len(self) + len(ids)), strict=True))
        return AddedLabels(
            self.ids.updated(ids),
            self.texts.updated(texts),
            self.contents.updated(contents),
            self.has_contents or any(contents),
            self.positions,
        )


@dataclass(frozen=True, eq=False)
class GrownLabels(LabelSet):
    """The trained labels and those added since; making one costs the same for any number."""

    trained: LabelSet | None = None
    added: AddedLabels | None = None

    def __post_init__(self) -> None:
        """Skip the checks of ``LabelSet``: the store has checked every added label."""

    @property
    def rows(self) -> Mapping[str, int]:
        """From id to row."""
        assert self.trained is not None
        assert self.added is not None
        return _Rows(self.trained, self.added)


def grown_labels(trained: LabelSet, added: AddedLabels) -> LabelSet:
    """Return the trained labels with the added ones after them.

    Returns:
        ``trained`` itself where nothing was added.
    """
    if not len(added):
        return trained
    contents: Sequence[str] | None = trained.contents
    if contents is not None or added.has_contents:
        first = contents if contents is not None else _Blanks(len(trained))
        contents = _Joined(first, added.contents)
    return GrownLabels(
        _Joined(trained.ids, added.ids),
        _Joined(trained.titles, added.texts),
        contents,
        trained=trained,
        added=added,
    )


class _Rows(Mapping[str, int]):
    def __init__(self, trained: LabelSet, added: AddedLabels) -> None:
        self._trained, self._added = trained, added

    def __getitem__(self, label_id: str) -> int:
        row = self._trained.rows.get(label_id)
        if row is not None:
            return row
        position = self._added.position(label_id)
        if position is None:
            raise KeyError(label_id)
        return len(self._trained) + position

    def __len__(self) -> int:
        return len(self._trained) + len(self._added)

    def __iter__(self) -> Iterator[str]:
        return chain(self._trained.ids, self._added.ids)


class _Joined(Sequence[str]):
    """Two sequences as one."""

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        self._first, self._second = first, second
        self._n = len(first)

    def __len__(self) -> int:
        return self._n + len(self._second)

    def __iter__(self) -> Iterator[str]:
        return chain(self._first, self._second)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            start, stop, step = row.indices(len(self))
            if step != 1:
                return [self[i] for i in range(start, stop, step)]
            first = self._first[start : min(stop, self._n)] if start < self._n else []
            second = self._second[max(start - self._n, 0) : max(stop - self._n, 0)]
            return [*first, *second]
        row = range(len(self))[row]
        return self._first[row] if row < self._n else self._second[row - self._n]


class _Blanks(Sequence[str]):
    """A number of empty strings."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, row: Any) -> Any:
        found = range(self._n)[row]
        return [""] * len(found) if isinstance(found, range) else ""
