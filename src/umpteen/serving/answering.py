"""From a batch of requests to their predictions: encode once, take one snapshot, rank."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.head_names import ENSEMBLE
from umpteen.predictor import Predictor
from umpteen.ranking.queries import Queries
from umpteen.ranking.ranker import DEPTH
from umpteen.ranking.snapshot import Snapshot
from umpteen.serving.neighbours import neighbours
from umpteen.types import TopK


@dataclass(frozen=True)
class Question:
    """Texts to label, checked."""

    texts: list[str]
    k: int
    head: str | None = None
    """The default head of the model for None."""
    threshold: float | str | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    explain: bool = False


@dataclass(frozen=True)
class Found:
    """The predictions for a question, with what explains them."""

    labels: list[list[dict[str, Any]]]
    """For each text its labels as JSON values."""
    head: str
    model: str
    revision: int
    """Of the snapshot that was used."""
    notes: list[str | None]
    """Why a text got no label above the threshold, where that is known."""
    neighbours: list[list[dict[str, Any]]] | None = None


@dataclass
class _Group:
    """Questions that one ranking can serve."""

    questions: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """Of their texts among the texts of the batch."""
    k: int = 0


def answer(predictor: Predictor, model: str, questions: list[Question]) -> list[Found]:
    """Predict for several questions together; each gets what it would get alone.

    Args:
        predictor: The model.
        model: Its name, returned with the predictions.
        questions: The questions of one batch. All of them see the same snapshot.

    Returns:
        The predictions for each question.
    """
    texts = [text for question in questions for text in question.texts]
    starts = np.cumsum([0, *(len(question.texts) for question in questions)])
    vectors, snapshot = predictor.vectors(texts), predictor.snapshot()
    groups: dict[tuple[str, Any, int, bool], _Group] = defaultdict(_Group)
    for number, question in enumerate(questions):
        # The ensemble ranks as many candidates as are asked for: questions that ask for more than
        # the usual number stand alone, or they would change the probabilities of others.
        head = predictor.require_head(question.head)
        deep = question.k if head == ENSEMBLE and question.k > DEPTH else 0
        group = groups[head, question.allow, deep, question.explain]
        group.questions.append(number)
        group.positions += range(starts[number], starts[number + 1])
        group.k = max(group.k, question.k)
    found: dict[int, Found] = {}
    for (head, allow, _, explain), group in groups.items():
        chosen = [questions[number] for number in group.questions]
        some = vectors if len(groups) == 1 else vectors[group.positions]
        queries = Queries([texts[place] for place in group.positions], some)
        top = _rank(predictor, queries, snapshot, head, allow, chosen, group.k, explain)
        labels = _named(predictor, top)
        near = None
        if explain:
            _add_explanations(predictor, queries, snapshot, head, top, labels)
            near = neighbours(predictor, queries, snapshot)
        place = 0
        for number, question in zip(group.questions, chosen, strict=True):
            own = slice(place, place + len(question.texts))
            place = own.stop
            limits = _limits(predictor, question, head, snapshot)
            kept = [_kept(line, question.k, limits) for line in labels[own]]
            notes = (top.notes or [None] * len(top))[own]
            shown = None if near is None else near[own]
            found[number] = Found(kept, head, model, snapshot.revision, notes, shown)
    return [found[number] for number in range(len(questions))]


def _rank(
    predictor: Predictor,
    queries: Queries,
    snapshot: Snapshot,
    head: str,
    allow: tuple[str, ...] | None,
    questions: list[Question],
    k: int,
    explain: bool,
) -> TopK:
    pairs = []
    place = 0
    for question in questions:
        denied = np.flatnonzero(snapshot.mask_of(question.deny)) if question.deny else ()
        if len(denied):
            positions = np.arange(place, place + len(question.texts))
            pairs.append(np.stack(np.meshgrid(positions, denied), axis=-1).reshape(-1, 2))
        place += len(question.texts)
    return predictor.rank(
        queries,
        snapshot,
        min(k, snapshot.n_labels),
        head=head,
        exclude=np.concatenate(pairs) if pairs else None,
        allowed=None if allow is None else snapshot.mask_of(allow),
        explain=explain and head == ENSEMBLE,
    )


def _named(predictor: Predictor, top: TopK) -> list[list[dict[str, Any]]]:
    counts = predictor.label_counts  # of the trained labels; added ones come after them
    n = len(counts)
    return [
        [
            {"id": label_id, "text": text, "score": score, "row": row,
             "count": int(counts[row]) if row < n else 0}
            for row, label_id, text, score in zip(rows, ids, texts, scores, strict=False)
        ]
        for rows, ids, texts, scores in zip(
            top.rows.tolist(), top.ids, top.texts, top.scores.tolist(), strict=True
        )
    ]  # fmt: skip


def _add_explanations(
    predictor: Predictor,
    queries: Queries,
    snapshot: Snapshot,
    head: str,
    top: TopK,
    labels: list[list[dict[str, Any]]],
) -> None:
    """Add what each scorer contributes to every label.

    For the ensemble that is each scorer's part of the score before it becomes a probability, for
    other heads each head's cosine; the combined score is their sum.
    """
    if head == ENSEMBLE:
        for line, entries in zip(labels, top.explanations or [], strict=True):
            for label, entry in zip(line, entries, strict=True):
                parts = entry["contributions"].items()
                label["contributions"] = {name: round(value, 6) for name, value in parts}
        return
    vectors = predictor.label_vectors
    heads = tuple(name for name in vectors.heads if name != "combined")
    rows = torch.from_numpy(top.rows).to(queries.vectors.device)
    scores = vectors.pair_scores(queries.vectors, rows, snapshot.added_vectors, heads)
    for place, line in enumerate(labels):
        for rank, label in enumerate(line):
            label["contributions"] = {
                name: round(float(values[place, rank]), 6) for name, values in scores.items()
            }


def _limits(
    predictor: Predictor, question: Question, head: str, snapshot: Snapshot
) -> NDArray[np.float32] | None:
    if question.threshold is None:
        return None
    predictor.check_threshold(question.threshold, head)
    return predictor.thresholds(question.threshold, snapshot).astype(np.float32)


def _kept(
    line: list[dict[str, Any]], k: int, limits: NDArray[np.float32] | None
) -> list[dict[str, Any]]:
    """Cut what was found for a whole group to what one question asked for."""
    kept = line[:k]
    if limits is not None:
        kept = [label for label in kept if label["score"] >= limits[label["row"]]]
    shown = [name for name in (kept[0] if kept else ()) if name != "row"]
    return [{name: label[name] for name in shown} | {"score": round(label["score"], 6)}
            for label in kept]  # fmt: skip
