"""The trained label set with added labels behind it, without a copy of either."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umpteen.data.labels import LabelSet
from umpteen.live.changes import LabelChanges


@dataclass(frozen=True)
class GrownLabels(LabelSet):
    """A label set as it is now; made in a moment, however many labels were trained.

    Lists of added labels only grow, so a set made earlier stays what it was.
    """

    trained: LabelSet | None = None
    added_rows: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        """Whoever added the labels has checked them."""

    @property
    def rows(self) -> Mapping[str, int]:  # type: ignore[override]
        """From id to row."""
        assert self.trained is not None
        assert self.added_rows is not None
        return ChainMap(self.added_rows, self.trained.rows)  # type: ignore[arg-type]


def grown(changes: LabelChanges) -> GrownLabels:
    """The labels as they are now."""
    trained, n = changes.trained, len(changes.added)
    added = changes.added[:n]
    has_contents = trained.contents is not None or any(label.content for label in added)
    contents = trained.contents if trained.contents is not None else _Blank(len(trained))
    return GrownLabels(
        _Chain(trained.ids, [label.id for label in added]),
        _Chain(trained.titles, [label.text for label in added]),
        _Chain(contents, [label.content for label in added]) if has_contents else None,
        trained=trained,
        added_rows=dict(changes.added_rows),
    )


class _Chain(Sequence[str]):
    """Two sequences as one."""

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        self._first, self._second = first, second
        self._n = len(first)

    def __len__(self) -> int:
        return self._n + len(self._second)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        return self._first[row] if row < self._n else self._second[row - self._n]


class _Blank(Sequence[str]):
    """Nothing, so many times."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, row: Any) -> Any:
        found = range(self._n)[row]
        return [""] * len(found) if isinstance(found, range) else ""
