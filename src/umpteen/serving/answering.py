"""From a batch of requests to their predictions: encode once, take one snapshot, rank."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.head_names import ENSEMBLE
from umpteen.predictor import Predictor
from umpteen.ranking.queries import Queries
from umpteen.ranking.ranker import DEPTH
from umpteen.ranking.snapshot import Snapshot
from umpteen.serving.costs import cost_of
from umpteen.serving.neighbours import neighbours
from umpteen.serving.served_model import ServedModel
from umpteen.types import TopK


class Pin:
    """The snapshot of a request, for all of its pieces."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None

    def keep(self, current: Snapshot) -> Snapshot:
        """Return the snapshot of the piece that came first."""
        if self._snapshot is None:
            self._snapshot = current
        return self._snapshot


@dataclass(frozen=True)
class PredictionJob:
    """Texts to label, checked."""

    texts: list[str]
    k: int
    head: str | None = None
    """The default head of the model for None."""
    threshold: float | str | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    explain: bool = False
    version: ServedModel | None = None
    """The model; the active one for None."""
    pin: Pin | None = None
    """For a piece of a larger job."""


@dataclass(frozen=True)
class Found:
    """The predictions for a job, with what explains them."""

    labels: list[list[dict[str, Any]]]
    """For each text its labels as JSON values."""
    head: str
    model: str
    name: str
    """Under which the model is served."""
    revision: int
    """Of the snapshot that was used."""
    notes: list[str | None]
    """Why a text got no label above the threshold, where that is known."""
    neighbours: list[list[dict[str, Any]]] | None = None


@dataclass
class _Group:
    """Questions that one ranking can serve."""

    snapshot: Snapshot
    jobs: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """Of their texts among the texts of the batch."""
    k: int = 0


def pieces(
    job: PredictionJob, active: ServedModel, max_cost: float
) -> list[tuple[PredictionJob, float]]:
    """Cut a job into pieces for different batches, each with its cost."""
    version = job.version or active
    k, explain = job.k, job.explain
    costs = [cost_of(len(text), k, explain=explain) for text in job.texts]
    if sum(costs) <= max_cost:
        if job.version is None:
            job = replace(job, version=version)
        return [(job, sum(costs))]
    pin, cut = Pin(), []
    start = 0
    while start < len(costs):
        end, cost = start + 1, costs[start]
        while end < len(costs) and cost + costs[end] <= max_cost:
            cost += costs[end]
            end += 1
        cut.append((replace(job, texts=job.texts[start:end], version=version, pin=pin), cost))
        start = end
    return cut


def joined(found: list[Found]) -> Found:
    """Put the answers to all pieces of a job together."""
    if len(found) == 1:
        return found[0]
    near = [line for each in found for line in each.neighbours or ()]
    return replace(
        found[0],
        labels=[line for each in found for line in each.labels],
        notes=[note for each in found for note in each.notes],
        neighbours=near or None,
    )


def answer(
    predictor: Predictor,
    model: str,
    jobs: list[PredictionJob],
    *,
    name: str = "",
    wait: bool = True,
) -> list[Found]:
    """Predict for several jobs together; each gets what it would get alone.

    Args:
        predictor: The model.
        model: Its name, returned with the predictions.
        jobs: The jobs of one batch. All of them see the same snapshot, or that of the
            first piece where they are pieces of a larger job.
        name: Under which the model is served.
        wait: Whether to wait for a snapshot that another thread is making.

    Returns:
        The predictions for each job.
    """
    texts = [text for job in jobs for text in job.texts]
    starts = np.cumsum([0, *(len(job.texts) for job in jobs)])
    vectors, current = predictor.vectors(texts), predictor.snapshot(wait=wait)
    groups: dict[tuple[str, Any, int, bool, int], _Group] = {}
    for number, job in enumerate(jobs):
        snapshot = current if job.pin is None else job.pin.keep(current)
        # The ensemble ranks as many candidates as are asked for: jobs that ask for more than
        # the usual number stand alone, or they would change the probabilities of others.
        head = predictor.require_head(job.head)
        deep = job.k if head == ENSEMBLE and job.k > DEPTH else 0
        key = (head, job.allow, deep, job.explain, id(snapshot))
        group = groups.setdefault(key, _Group(snapshot))
        group.jobs.append(number)
        group.positions += range(starts[number], starts[number + 1])
        group.k = max(group.k, job.k)
    found: dict[int, Found] = {}
    for (head, allow, _, explain, _), group in groups.items():
        snapshot = group.snapshot
        chosen = [jobs[number] for number in group.jobs]
        some = vectors if len(groups) == 1 else vectors[group.positions]
        queries = Queries([texts[place] for place in group.positions], some)
        top = _rank(predictor, queries, snapshot, head, allow, chosen, group.k, explain)
        labels = _named(predictor, top)
        near = None
        if explain:
            _add_explanations(predictor, queries, snapshot, head, top, labels)
            near = neighbours(predictor, queries, snapshot)
        place = 0
        for number, job in zip(group.jobs, chosen, strict=True):
            own = slice(place, place + len(job.texts))
            place = own.stop
            limits = _limits(predictor, job, head, snapshot)
            kept = [_kept(line, job.k, limits) for line in labels[own]]
            notes = (top.notes or [None] * len(top))[own]
            shown = None if near is None else near[own]
            found[number] = Found(kept, head, model, name, snapshot.revision, notes, shown)
    return [found[number] for number in range(len(jobs))]


def _rank(
    predictor: Predictor,
    queries: Queries,
    snapshot: Snapshot,
    head: str,
    allow: tuple[str, ...] | None,
    jobs: list[PredictionJob],
    k: int,
    explain: bool,
) -> TopK:
    pairs = []
    place = 0
    for job in jobs:
        denied = np.flatnonzero(snapshot.mask_of(job.deny)) if job.deny else ()
        if len(denied):
            positions = np.arange(place, place + len(job.texts))
            pairs.append(np.stack(np.meshgrid(positions, denied), axis=-1).reshape(-1, 2))
        place += len(job.texts)
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
                for part in ("scores", "contributions"):
                    values = entry[part].items()
                    label[part] = {name: round(value, 6) for name, value in values}
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
    predictor: Predictor, job: PredictionJob, head: str, snapshot: Snapshot
) -> NDArray[np.float32] | None:
    if job.threshold is None:
        return None
    predictor.check_threshold(job.threshold, head)
    return predictor.thresholds(job.threshold, snapshot).astype(np.float32)


def _kept(
    line: list[dict[str, Any]], k: int, limits: NDArray[np.float32] | None
) -> list[dict[str, Any]]:
    """Cut what was found for a whole group to what one job asked for."""
    kept = line[:k]
    if limits is not None:
        kept = [label for label in kept if label["score"] >= limits[label["row"]]]
    shown = [name for name in (kept[0] if kept else ()) if name != "row"]
    return [{name: label[name] for name in shown} | {"score": round(label["score"], 6)}
            for label in kept]  # fmt: skip
