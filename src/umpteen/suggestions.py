"""Which texts to label next: those whose correction is expected to change most.

The expected number of wrong labels of a text follows from its probabilities. A correction also
changes the predictions of similar texts, so texts are chosen one after the other: each next one
has the most expected errors near it that no text chosen before it is near to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError
from umpteen.head_names import ENSEMBLE
from umpteen.predictor import Predictor
from umpteen.ranking.queries import Queries
from umpteen.types import TopK

TEXTS_AT_ONCE = 1024
MAX_POOL = 4096
"""Texts that are compared with each other: those with the most expected errors."""
PLACES = 20
"""Labels of a text that are looked at, as many as a prediction with a threshold has."""
SHARPNESS = 4
"""Power of the cosine by which a correction counts for a similar text: only near ones do."""


@dataclass(frozen=True)
class Suggestion:
    """A text to label, with what is predicted for it."""

    position: int
    """Place among the texts that were given, from 0."""
    text: str
    gain: float
    """Expected errors that its correction may remove, in this text and in similar ones."""
    expected_errors: float
    """Expected number of wrong and missing labels of this text alone."""
    labels: list[dict[str, Any]]
    """Labels by probability: id, text, score, and whether the score reaches the threshold."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; ``labels`` are the predicted ids, ready to be corrected."""
        return {
            "text": self.text,
            "labels": [label["id"] for label in self.labels if label["predicted"]],
            "gain": round(self.gain, 4),
            "expected_errors": round(self.expected_errors, 4),
            "candidates": [
                {name: label[name] for name in ("id", "text", "score")} for label in self.labels
            ],
        }


@dataclass
class _Pool:
    """The texts with the most expected errors so far, and what is known of them."""

    positions: NDArray[np.int64]
    texts: list[str]
    errors: NDArray[np.float64]
    vectors: NDArray[np.float32]
    rows: NDArray[np.int64]
    scores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: NDArray[np.int64]) -> _Pool:
        """Return some of the texts."""
        return _Pool(
            self.positions[rows],
            [self.texts[row] for row in rows.tolist()],
            self.errors[rows],
            self.vectors[rows],
            self.rows[rows],
            self.scores[rows],
        )

    def joined(self, other: _Pool) -> _Pool:
        """Return the texts of both."""
        return _Pool(
            np.concatenate([self.positions, other.positions]),
            [*self.texts, *other.texts],
            np.concatenate([self.errors, other.errors]),
            np.concatenate([self.vectors, other.vectors]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.scores, other.scores]),
        )


def suggest(model: Predictor, texts: Iterable[str], n: int = 20) -> list[Suggestion]:
    """Choose the texts to label next, the most useful first.

    Equal texts are suggested once, texts without characters never. Memory does not grow with the
    number of texts.

    Args:
        model: A predictor with an ensemble, whose scores are probabilities.
        texts: Texts without labels, any number of them.
        n: How many to choose.

    Returns:
        At most n suggestions, by falling gain.

    Raises:
        ConfigError: If the model has no ensemble, or n is below 1.
    """
    if n < 1:
        raise ConfigError(f"n is {n}; request at least 1 text")
    if ENSEMBLE not in model.heads:
        raise ConfigError(
            "suggestions need the probabilities of an ensemble, which this run does not have; fit "
            "one with umpteen fit-ensemble RUN DATA"
        )
    snapshot = model.snapshot()
    limits = model.thresholds("auto", snapshot)
    size, pool = max(MAX_POOL, n), None
    for positions, block in _blocks(texts):
        queries = Queries(block, model.vectors(block))
        top = model.rank(queries, snapshot, min(PLACES, snapshot.n_labels), head=ENSEMBLE)
        found = _Pool(
            positions,
            block,
            expected_errors(top, limits),
            _unit(queries.vectors.float().cpu().numpy()),
            top.rows,
            top.scores,
        )
        pool = found if pool is None else pool.joined(found)
        pool = pool.take(_most(pool, size))
    if pool is None:
        return []
    order, gains = choose(pool.errors, pool.vectors, n)
    chosen = pool.take(order)
    return [
        Suggestion(
            int(chosen.positions[place]),
            chosen.texts[place],
            float(gains[place]),
            float(chosen.errors[place]),
            _labels_of(chosen, place, snapshot.labels, limits),
        )
        for place in range(len(chosen))
    ]


def _labels_of(
    pool: _Pool, place: int, labels: LabelSet, limits: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return the labels of a text with their scores, as JSON values."""
    pairs = zip(pool.rows[place].tolist(), pool.scores[place].tolist(), strict=True)
    return [
        {
            "id": labels.ids[row],
            "text": labels.texts[row],
            "score": round(score, 6),
            "predicted": bool(score >= limits[row]),
        }
        for row, score in pairs
        if row >= 0
    ]


def expected_errors(top: TopK, limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (N,) the expected number of wrong and missing labels of each text.

    A label with probability p is wrong with probability 1 - p where it is predicted, and missing
    with probability p where it is not.

    Args:
        top: Probabilities.
        limits: (L,) the probability from which on a label is predicted.

    Example:
        >>> top = TopK(np.array([[0, 1], [1, -1]]), np.array([[0.75, 0.25], [0.5, -np.inf]]))
        >>> expected_errors(top, np.array([0.5, 0.6])).tolist()
        [0.5, 0.5]
    """
    filled = top.rows >= 0
    chances = np.where(filled, top.scores, 0.0).astype(np.float64).clip(0.0, 1.0)
    predicted = chances >= limits[np.maximum(top.rows, 0)]
    return (np.where(predicted, 1.0 - chances, chances) * filled).sum(axis=1)


def choose(
    errors: NDArray[np.float64], vectors: NDArray[np.float32], n: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose texts greedily by the expected errors near them that are not yet near a chosen one.

    Args:
        errors: (N,) expected errors.
        vectors: (N, D) of length one.
        n: How many to choose.

    Returns:
        Rows in order, and the gain of each. A text that adds nothing is not chosen.
    """
    near = np.clip(vectors @ vectors.T, 0.0, 1.0) ** SHARPNESS  # (N, N)
    np.fill_diagonal(near, 1.0)
    covered = np.zeros(len(errors))
    rows: list[int] = []
    gains: list[float] = []
    for _ in range(min(n, len(errors))):
        gain = np.maximum(near - covered, 0.0) @ errors  # (N,)
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        rows.append(best)
        gains.append(float(gain[best]))
        covered = np.maximum(covered, near[best])
    return np.array(rows, np.int64), np.array(gains)


def _most(pool: _Pool, size: int) -> NDArray[np.int64]:
    """Return rows of the texts with the most expected errors, equal texts once, in order."""
    _, first = np.unique(np.array(pool.texts, dtype=object), return_index=True)
    ranked = first[np.lexsort((pool.positions[first], -pool.errors[first]))]
    return np.sort(ranked[:size])


def _blocks(texts: Iterable[str]) -> Iterator[tuple[NDArray[np.int64], list[str]]]:
    """Yield texts that are not blank, and their positions."""
    source = ((place, text) for place, text in enumerate(texts) if text.strip())
    while block := list(islice(source, TEXTS_AT_ONCE)):
        yield np.array([place for place, _ in block]), [text for _, text in block]


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.float32(1e-12))
