"""Predictions as people read them: one text's labels, lists, data frames, matrices, HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from umpteen.display import Cell, counted, html_table, shorten
from umpteen.extras import require

SHOWN_TEXTS, SHOWN_LABELS = 5, 5
"""Texts and labels in a repr."""
TABLE_ROWS = 60
"""Rows of an HTML table."""


class Ranked(Protocol):
    """What is read of a ``TopK``, which describes the fields."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """(N, K) label rows."""

    @property
    def scores(self) -> NDArray[np.float32]:
        """(N, K) their scores."""

    @property
    def labels(self) -> Any:
        """The label set, or None."""

    @property
    def notes(self) -> Sequence[str | None] | None:
        """One for each text."""

    @property
    def explanations(self) -> Sequence[list[dict[str, Any]]] | None:
        """For each prediction."""

    @property
    def queries(self) -> Sequence[str] | None:
        """The texts."""

    def __len__(self) -> int: ...

    def named(self, field: str, rows: NDArray[np.int64]) -> list[str]:
        """Return ids or texts of label rows."""


class PredictedLabel(NamedTuple):
    """One label of a prediction."""

    id: str
    text: str
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The labels of one text, best first.

    Iterate over it to get its labels, each with ``id``, ``text`` and ``score``.
    """

    rows: NDArray[np.int64]
    """(n,) label rows."""
    ids: list[str]
    """The user's label ids."""
    texts: list[str]
    """The labels' texts."""
    scores: NDArray[np.float32]
    """(n,) their scores."""
    query: str | None = None
    """The text that was labelled, where it is known."""
    note: str | None = None
    """Why no label is probable, where that is known."""
    explanation: list[dict[str, Any]] | None = None
    """For each label the scores and contributions of the scorers, where requested."""

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> PredictedLabel: ...

    @overload
    def __getitem__(self, place: slice) -> list[PredictedLabel]: ...

    def __getitem__(self, place: int | slice) -> PredictedLabel | list[PredictedLabel]:
        return list(self)[place]

    def __iter__(self) -> Iterator[PredictedLabel]:
        return map(PredictedLabel, self.ids, self.texts, self.scores.tolist())

    def to_list(self) -> list[dict[str, Any]]:
        """Return the labels as JSON values, as ``umpteen predict`` writes them."""
        labels: list[dict[str, Any]] = [
            {"id": label.id, "text": label.text, "score": round(label.score, 6)} for label in self
        ]
        if self.explanation is None:
            return labels
        return [label | shown for label, shown in zip(labels, self.explanation, strict=True)]

    def __repr__(self) -> str:
        return f"Prediction({_line(self.ids, self.scores)})"

    def _repr_html_(self) -> str:
        shown = self.explanation or []
        names = list(shown[0].get("contributions", {})) if shown else []
        rows: list[list[Cell]] = [
            [
                *(label.id, shorten(label.text), label.score),
                *(shown[place]["contributions"][name] for name in names),
            ]
            for place, label in enumerate(self)
        ]
        caption = "" if self.query is None else shorten(self.query, 200)
        return html_table(
            ["id", "label", "score", *names], rows, caption=caption, more=self.note or ""
        )


def prediction(top: Ranked, place: int) -> Prediction:
    """Return the labels of one text."""
    if not -len(top) <= place < len(top):
        raise IndexError(f"there is no text {place}: these are the predictions of {len(top)} texts")
    place %= len(top)
    filled = top.rows[place] >= 0
    rows = top.rows[place][filled]
    return Prediction(
        rows,
        top.named("ids", rows),
        top.named("texts", rows),
        top.scores[place][filled],
        None if top.queries is None else top.queries[place],
        None if top.notes is None else top.notes[place],
        None if top.explanations is None else top.explanations[place],
    )


def to_frame(top: Ranked, index: Sequence[Any] | None = None) -> Any:
    """Return one row for each prediction as a pandas DataFrame; see ``TopK.to_frame``."""
    pandas = require("pandas", extra="pandas")
    filled = top.rows >= 0
    query, place = np.nonzero(filled)
    rows = top.rows[filled]
    columns = {
        "rank": place + 1,
        "id": top.named("ids", rows),
        "text": top.named("texts", rows),
        "score": top.scores[filled],
    }
    shown = [entry["contributions"] for line in top.explanations or () for entry in line]
    for name in shown[0] if shown else ():
        columns[f"contribution_{name}"] = np.array([each[name] for each in shown], np.float32)
    if index is None:
        names = pandas.Index(query, name="query")
    elif len(index) != len(top):
        raise ValueError(f"the index has {len(index)} values for {len(top)} texts")
    else:
        names = pandas.Index(index).take(query)
    return pandas.DataFrame(columns, index=names)


def to_csr(top: Ranked, n_labels: int | None = None) -> Any:
    """Return the scores as a sparse matrix; see ``TopK.to_csr``."""
    import scipy.sparse as sp

    if n_labels is None:
        if top.labels is None:
            raise ValueError("this TopK was made without a label set; give n_labels")
        n_labels = len(top.labels.ids)
    filled = top.rows >= 0
    ends = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
    shape = (len(top), n_labels)
    matrix = sp.csr_matrix((top.scores[filled], top.rows[filled], ends), shape=shape)
    matrix.sort_indices()
    return matrix


def short_repr(top: Ranked) -> str:
    """Return the first labels of the first texts."""
    title = f"TopK({counted(len(top), 'text')}, k={top.rows.shape[1]})"
    if top.labels is None:
        return title
    lines = [
        f"  {place}: {_line(one.ids, one.scores) or 'no label'}"
        for place, one in ((place, prediction(top, place)) for place in _first(top))
    ]
    left = len(top) - len(lines)
    more = [f"  and {counted(left, 'text')} more"] if left else []
    return "\n".join([title, *lines, *more])


def to_html(top: Ranked) -> str:
    """Return a table with the labels of the first texts."""
    rows: list[list[Cell]] = []
    shown = 0
    for one in (prediction(top, place) for place in range(len(top))):
        if len(rows) + max(1, len(one)) > TABLE_ROWS and rows:
            break
        shown += 1
        text = str(shown - 1) if one.query is None else shorten(one.query, 120)
        rows.extend([text if not at else "", *label] for at, label in enumerate(one))
        if not len(one):
            rows.append([text, "", one.note or "no label", None])
    left = len(top) - shown
    return html_table(
        ["text", "id", "label", "score"], rows, more=f"{left:,} more texts" if left else ""
    )


def _first(top: Ranked) -> range:
    return range(min(len(top), SHOWN_TEXTS))


def _line(ids: Sequence[str], scores: NDArray[np.float32]) -> str:
    shown = [
        f"{shorten(label_id, 30)} {score:.3f}"
        for label_id, score in zip(ids[:SHOWN_LABELS], scores.tolist(), strict=False)
    ]
    return ", ".join([*shown, ".."] if len(ids) > SHOWN_LABELS else shown)
