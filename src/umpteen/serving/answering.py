"""From a batch of requests to their answers: encode once, search once for each kind of search."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.answers.views import DEPTH
from umpteen.head_names import ENSEMBLE
from umpteen.predictor import Predictor
from umpteen.types import TopK

SHOWN = 5
"""Neighbours that an explanation shows."""


@dataclass(frozen=True)
class Question:
    """Texts to label, checked."""

    texts: list[str]
    k: int
    head: str
    threshold: float | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    explain: bool = False


@dataclass(frozen=True)
class Found:
    """The answer to a question, with what explains it."""

    labels: list[list[dict[str, Any]]]
    """For each text its labels as JSON values."""
    model: str
    revision: int
    neighbours: list[list[dict[str, Any]]] | None = None


@dataclass
class _Group:
    """Questions that one search can answer."""

    questions: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """Of their texts among the texts of the batch."""
    k: int = 0


def answer(predictor: Predictor, model: str, questions: list[Question]) -> list[Found]:
    """Answer questions together; each gets what it would get alone.

    Args:
        predictor: The model.
        model: Its name, to be said in the answers.
        questions: What was asked.

    Returns:
        An answer to each question.
    """
    texts = [text for question in questions for text in question.texts]
    starts = np.cumsum([0, *(len(question.texts) for question in questions)])
    vectors = predictor.vectors(texts)
    groups: dict[tuple[str, Any, int], _Group] = defaultdict(_Group)
    for number, question in enumerate(questions):
        # The ensemble head weighs as many candidates as are asked for: others must not ask for
        # more.
        deep = question.k if question.head == ENSEMBLE and question.k > DEPTH else 0
        group = groups[question.head, question.allow, deep]
        group.questions.append(number)
        group.positions += range(starts[number], starts[number + 1])
        group.k = max(group.k, question.k)
    found: dict[int, Found] = {}
    revision = predictor.live.book.journal.revision if predictor.live is not None else 0
    for (head, allow, _), group in groups.items():
        chosen = [questions[number] for number in group.questions]
        some = vectors if len(groups) == 1 else vectors[group.positions]
        top = _search(predictor, some, head, allow, chosen, group.k)
        labels = _named(predictor, top)
        near = None
        if any(question.explain for question in chosen):
            _explain(
                predictor, [texts[place] for place in group.positions], some, head, top, labels
            )
            near = neighbours(predictor, some)
        place = 0
        for number, question in zip(group.questions, chosen, strict=True):
            own = slice(place, place + len(question.texts))
            place = own.stop
            kept = [_kept(line, question) for line in labels[own]]
            shown = near[own] if near is not None and question.explain else None
            found[number] = Found(kept, model, revision, shown)
    return [found[number] for number in range(len(questions))]


def _search(
    predictor: Predictor,
    vectors: torch.Tensor,
    head: str,
    allow: tuple[str, ...] | None,
    questions: list[Question],
    k: int,
) -> TopK:
    labels = predictor.live.labels if predictor.live is not None else predictor.labels
    allowed = None
    if allow is not None:
        allowed = np.zeros(len(labels), np.bool_)
        allowed[[labels.rows[label_id] for label_id in allow if label_id in labels.rows]] = True
    pairs = []
    place = 0
    for question in questions:
        denied = [labels.rows[i] for i in question.deny if i in labels.rows]
        if denied:
            positions = np.arange(place, place + len(question.texts))
            pairs.append(np.stack(np.meshgrid(positions, denied), axis=-1).reshape(-1, 2))
        place += len(question.texts)
    exclude = np.concatenate(pairs) if pairs else None
    texts = [text for question in questions for text in question.texts]
    return predictor.search(
        vectors, min(k, len(labels)), head=head, texts=texts, exclude=exclude, allowed=allowed
    )


def _named(predictor: Predictor, top: TopK) -> list[list[dict[str, Any]]]:
    counts = predictor.label_counts
    n = len(counts)
    return [
        [
            {
                "id": label_id,
                "text": text,
                "score": round(score, 6),
                "count": int(counts[row]) if row < n else 0,
            }
            for row, label_id, text, score in zip(rows, ids, texts, scores, strict=False)
        ]
        for rows, ids, texts, scores in zip(
            top.rows.tolist(), top.ids, top.texts, top.scores.tolist(), strict=True
        )
    ]


def _explain(
    predictor: Predictor,
    texts: list[str],
    vectors: torch.Tensor,
    head: str,
    top: TopK,
    labels: list[list[dict[str, Any]]],
) -> None:
    """Add what each part gave to every label.

    For the ensemble head that is each part's share of the score before it becomes a probability,
    for the others each head's cosine; the combined score is their sum.
    """
    if head == ENSEMBLE:
        for line, told in zip(labels, predictor.explain(texts, top), strict=True):
            for label, parts in zip(line, told, strict=False):
                shares = parts["shares"].items() if len(told) == len(line) else ()
                label["parts"] = {name: round(value, 6) for name, value in shares}
        return
    queries = vectors.cpu().numpy()
    of_labels = row_vectors(predictor, np.maximum(top.rows, 0))  # (B, K, heads * dim)
    cosines = {
        name: np.einsum("bd,bkd->bk", queries[:, columns], of_labels[:, :, columns])
        for name in predictor.vector_heads
        if name != "combined" and (columns := predictor.columns(name))
    }
    for place, line in enumerate(labels):
        for rank, label in enumerate(line):
            label["parts"] = {
                name: round(float(values[place, rank]), 6) for name, values in cosines.items()
            }


def neighbours(predictor: Predictor, vectors: torch.Tensor) -> list[list[dict[str, Any]]] | None:
    """The nearest remembered queries of each text, where the run remembers any.

    Training texts may be remembered by their vectors alone (``examples.texts``): they have no
    words. Labels that were retired since are left out.
    """
    remembered = predictor.ensemble.views.remembered if predictor.ensemble is not None else None
    if remembered is None or not len(remembered):
        return None
    now = remembered.refresh()
    known = predictor.labels_now()
    targets = remembered.targets(known.rows, len(known), now)
    retired = set(predictor.live.book.changes.retired) if predictor.live is not None else set()
    halves = len(predictor.model.heads)  # a sum of as many cosines
    top = remembered.nearest(vectors, min(SHOWN, len(remembered)), now)
    return [
        [
            {
                "text": remembered.text(row, now),
                "labels": [
                    known.texts[label]
                    for label in targets[row].indices.tolist()
                    if known.ids[label] not in retired
                ],
                "score": round(score / halves, 6),
            }
            for row, score in zip(rows, scores, strict=True)
            if row >= 0
        ]
        for rows, scores in zip(top.rows.tolist(), top.scores.tolist(), strict=True)
    ]


def row_vectors(predictor: Predictor, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Search vectors of trained and added labels, in the shape of the rows and (heads * dim)."""
    trained = predictor.label_vectors(predictor.vector_heads[-1])
    n = len(trained)
    flat = rows.reshape(-1)
    vectors = np.array(trained[np.minimum(flat, n - 1)], np.float32)
    late = flat >= n
    if late.any() and predictor.live is not None:
        vectors[late] = predictor.live.refresh().vectors[flat[late] - n].cpu().numpy()
    return vectors.reshape(*rows.shape, -1)


def _kept(line: list[dict[str, Any]], question: Question) -> list[dict[str, Any]]:
    """What one question asked for, of what was found for all of its group."""
    kept = line[: question.k]
    if question.threshold is not None:
        kept = [label for label in kept if label["score"] >= question.threshold]
    if question.explain:
        return kept
    return [{name: label[name] for name in label if name != "parts"} for label in kept]
