"""Labels of a run with their vectors, in batches, as a vector store takes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import UmpteenError
from umpteen.predictor import Predictor

ROWS_AT_ONCE = 4096
COLUMNS = frozenset({"id", "text", "count", "vector"})
"""Of a table of exported labels."""


@dataclass(frozen=True)
class LabelRows:
    """Some labels: ids, texts, number of training texts, and vectors (n, dim)."""

    first: int
    """Position of the first one among all that are exported."""
    ids: list[str]
    texts: list[str]
    counts: list[int]
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)


class LabelTable:
    """The labels that a run predicts now: trained and added ones, without retired ones.

    Args:
        predictor: The model.
        head: ``dual``, ``classifier`` or ``combined``.

    Raises:
        ConfigError: If the model has no such head.
    """

    def __init__(self, predictor: Predictor, head: str) -> None:
        vectors = predictor.label_vectors
        self.head = vectors.require(head)
        self._columns = vectors.columns[self.head]
        self._trained = vectors.numpy(self.head)
        self._snapshot = predictor.snapshot()
        allowed = self._snapshot.allowed
        rows = np.arange(self._snapshot.n_labels)
        self._rows = rows if allowed is None else rows[allowed]
        self.normalized = predictor.model.normalize or self.head != "dual"

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dim(self) -> int:
        """Size of the vectors."""
        return int(self._trained.shape[1])

    def batches(self, size: int = ROWS_AT_ONCE) -> Iterator[LabelRows]:
        """Yield all labels, some at a time."""
        labels, n = self._snapshot.labels, self._snapshot.n_trained
        added = self._snapshot.added_vectors.vectors[:, self._columns].cpu().numpy()
        for first in range(0, len(self._rows), size):
            rows = self._rows[first : first + size]
            vectors = np.concatenate([self._trained[rows[rows < n]], added[rows[rows >= n] - n]])
            places = rows.tolist()
            yield LabelRows(
                first,
                [labels.ids[row] for row in places],
                [labels.texts[row] for row in places],
                self._snapshot.label_counts[rows].tolist(),
                np.ascontiguousarray(vectors, np.float32),
            )

    def describe(self) -> str:
        """Return what is exported, in words."""
        noun = "label" if len(self) == 1 else "labels"
        return f"{len(self):,} {noun}, vectors of {self.dim} of the head {self.head}"


def require_own(columns: Collection[str], place: str) -> None:
    """Raise if a table that would be replaced was not written by an export.

    Args:
        columns: Of the table; none if it does not exist.
        place: The table, for the message.

    Raises:
        UmpteenError: If it has other columns than a table of labels.
    """
    if columns and set(columns) != COLUMNS:
        raise UmpteenError(
            f"{place} holds something else (columns {', '.join(columns)}) and is not replaced; "
            "name another one with --table"
        )
