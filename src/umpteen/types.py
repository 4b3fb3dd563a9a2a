"""The small values that travel between the parts: ragged tokens, positives and the top-k labels.

Arrays only, no behaviour that needs a model, and no torch at import.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from umpteen.predictions import Prediction, prediction, short_repr, to_csr, to_frame, to_html

RowIndices = NDArray[np.int64]
"""(N,) positions of queries or labels."""
Log = Callable[[str], None]
"""Receives progress lines."""
Progress = Callable[[int, int], None]
"""Receives how much of something is done, and of how much."""


class NamesLabels(Protocol):
    """Whatever can turn label rows into the user's ids and texts (a LabelSet)."""

    @property
    def ids(self) -> Any:
        """The user's label ids in row order."""

    @property
    def texts(self) -> Any:
        """The labels' texts in row order."""


@dataclass(frozen=True)
class Ragged:
    """Token ids of several texts in one flat array, without padding.

    Text i is ``ids[offsets[i] : offsets[i + 1]]``. Offsets are always on the host, since shapes are
    decided there; only the ids may already be where the encoder is.
    """

    ids: Any
    """(T,) token ids of all texts, in order; NumPy, or a tensor on the model's device."""
    offsets: Any
    """(B + 1,) where each text starts, NumPy; the last entry is T."""
    layout: Any = None
    """What the encoder's own ``layout`` made of these tokens beforehand, where it has one."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class ScoreSummary:
    """Names of ``row_stats`` that have fast paths: (B, C) to (B, 1)."""

    function: str
    """``logsumexp``, or ``softplus`` for the sum of softplus; merged in the same way."""
    over_positives: bool
    """Whether positives are among the scores; dropped and ignored pairs never are."""
    linear: bool
    """Whether the loss is linear in the summary, for given positives' scores."""


@dataclass(frozen=True)
class Positives:
    """The relevant (query, candidate) pairs of a block of scores.

    Pairs, never a dense matrix. ``targets`` are in (0, 1]; 1 for ordinary relevance. NumPy arrays,
    or tensors on one device.
    """

    rows: Any
    """(P,) position of the query in the block."""
    cols: Any
    """(P,) position of the candidate in the block."""
    targets: Any
    """(P,) how relevant."""

    def __len__(self) -> int:
        return len(self.rows)

    def transposed(self) -> Positives:
        """Return the same pairs seen from the candidates."""
        return Positives(self.cols, self.rows, self.targets)


@dataclass(frozen=True, eq=False, repr=False)
class TopK:
    """The one prediction type of library, command line and evaluation.

    ``top[0]`` holds the labels of the first text, ``top[:10]`` the first ten texts, and a loop
    goes over texts. Scores fall along a row; equal scores are ordered by the smaller row; places
    without a prediction hold row -1 and score -inf, always at the end.
    """

    rows: NDArray[np.int64]
    """(N, K) label rows, -1 where there is none."""
    scores: NDArray[np.float32]
    """(N, K) their scores."""
    labels: NamesLabels | None = None
    """The label set that the rows belong to; needed for ids and texts alone."""
    notes: list[str | None] | None = None
    """Why a text got no label worth a look, one entry a text; None where nothing was checked."""
    explanations: Sequence[list[dict[str, Any]]] | None = None
    """For each prediction the scores and contributions of the scorers, where requested."""
    queries: Sequence[str] | None = None
    """The texts that were labelled, where they are known."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Prediction]:
        return (self[place] for place in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Prediction: ...

    @overload
    def __getitem__(self, place: slice | list[int] | NDArray[Any]) -> TopK: ...

    def __getitem__(self, place: int | slice | list[int] | NDArray[Any]) -> Prediction | TopK:
        if not isinstance(place, slice | list | np.ndarray):
            return prediction(self, operator.index(place))
        if isinstance(place, list):  # an empty one is of numbers, not of floats
            place = np.array(place) if place else np.empty(0, np.int64)

        def of(values: Any) -> Any:
            if values is None or isinstance(place, slice):
                return values if values is None else values[place]
            return [values[row] for row in np.arange(len(self))[place].tolist()]

        return TopK(
            self.rows[place],
            self.scores[place],
            self.labels,
            of(self.notes),
            of(self.explanations),
            of(self.queries),
        )

    @property
    def ids(self) -> list[list[str]]:
        """The user's label ids, one list per query, without the empty places."""
        return self._named("ids")

    @property
    def texts(self) -> list[list[str]]:
        """The labels' texts, one list per query, without the empty places."""
        return self._named("texts")

    def named(self, field: str, rows: NDArray[np.int64]) -> list[str]:
        """Return the ``ids`` or ``texts`` of label rows."""
        names = self._names(field)
        return [names[row] for row in rows.tolist()]

    def _names(self, field: str) -> Any:
        if self.labels is None:
            raise ValueError("this TopK was made without a label set; only .rows and .scores exist")
        return getattr(self.labels, field)

    def _named(self, field: str) -> list[list[str]]:
        names = self._names(field)
        return [[names[row] for row in line if row >= 0] for line in self.rows.tolist()]

    def cut(self, k: int) -> TopK:
        """Return the first k places."""
        lines = self.explanations
        shown = None if lines is None else [line[:k] for line in lines]
        return TopK(
            self.rows[:, :k], self.scores[:, :k], self.labels, self.notes, shown, self.queries
        )

    def to_list(self) -> list[list[dict[str, Any]]]:
        """Return JSON values: for each text a list of ``{"id", "text", "score"}``, best first."""
        return [line.to_list() for line in self]

    def to_frame(self, index: Sequence[Any] | None = None) -> Any:
        """Return a pandas DataFrame with one row for each predicted label (extra ``pandas``).

        Args:
            index: A value for each text, such as ``df.index``; by default the text's position.

        Returns:
            Columns ``rank``, ``id``, ``text`` and ``score``; with explanations also
            ``contribution_`` and the scorer's name. A text without labels has no row.

        Raises:
            ValueError: If the index has another length.
        """
        return to_frame(self, index)

    def to_csr(self, n_labels: int | None = None) -> Any:
        """Return the scores as a SciPy CSR matrix.

        Args:
            n_labels: The number of columns; by default that of the label set.

        Returns:
            (N, labels) with a stored value for each prediction.
        """
        return to_csr(self, n_labels)

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        return short_repr(self) if self.labels is None else to_html(self)


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where parts of these lengths start, and where the last one ends, (N + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
