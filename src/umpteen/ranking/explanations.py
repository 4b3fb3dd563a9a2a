"""Explanations of predictions: arrays that become JSON values when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.display import Cell, counted, html_table

SHOWN = 5
"""Texts in a table."""
Tables = dict[str, dict[str, NDArray[np.float32]]]


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(Sequence[list[dict[str, Any]]]):
    """For each text, and each of its predictions, the scores and contributions of all scorers.

    Example:
        >>> one = np.array([[0.5, 0.25]], np.float32)
        >>> Explanations({"scores": {"dual": one}}, np.array([1]))[0]
        [{'scores': {'dual': 0.5}}]
    """

    tables: Tables
    """``scores`` and ``contributions``: name to (N, K)."""
    lengths: NDArray[np.int64]
    """(N,) predictions of each text."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        lines = {
            part: {name: values[place].tolist() for name, values in table.items()}
            for part, table in self.tables.items()
        }
        return [
            {
                part: {name: values[rank] for name, values in table.items()}
                for part, table in lines.items()
            }
            for rank in range(int(self.lengths[place]))
        ]

    def __repr__(self) -> str:
        names = ", ".join(self.tables.get("contributions", {}))
        return f"Explanations({counted(len(self), 'text')}; scorers: {names})"

    def _repr_html_(self) -> str:
        names = list(self.tables.get("contributions", {}))
        rows: list[list[Cell]] = [
            [place, rank, *(entry["contributions"][name] for name in names)]
            for place, line in enumerate(self[:SHOWN])
            for rank, entry in enumerate(line, start=1)
        ]
        left = len(self) - SHOWN
        more = f"and {counted(left, 'text')} more" if left > 0 else ""
        return html_table(["text", "rank", *names], rows, caption="contributions", more=more)

    def reordered(self, order: NDArray[np.int64], lengths: NDArray[np.int64]) -> Explanations:
        """Return the explanations of predictions in another order.

        Args:
            order: (N, K) the earlier place of each prediction.
            lengths: (N,) how many are left.

        Returns:
            As many texts.
        """
        return Explanations(
            {
                part: {name: np.take_along_axis(v, order, 1) for name, v in table.items()}
                for part, table in self.tables.items()
            },
            lengths,
        )


def joined(parts: Sequence[Explanations]) -> Explanations:
    """Join the explanations of blocks of texts."""
    first = parts[0].tables
    return Explanations(
        {
            part: {
                name: np.concatenate([each.tables[part][name] for each in parts]) for name in table
            }
            for part, table in first.items()
        },
        np.concatenate([each.lengths for each in parts]),
    )
