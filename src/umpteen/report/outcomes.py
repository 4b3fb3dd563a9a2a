"""What a run's heads predict, on its own examples or on a split of data. Defines no metric."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, Propensity, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.errors import RunError
from umpteen.evaluation import MatchedSplit, evaluate, match_split
from umpteen.head_names import ENSEMBLE
from umpteen.metrics import DEFAULT_METRICS, parse_all
from umpteen.metrics.bins import contributions
from umpteen.metrics.hits import find_hits
from umpteen.metrics.per_label import label_scores
from umpteen.per_label import PerLabel
from umpteen.predictor import Predictor
from umpteen.ranking.calibration import PLACES as SET_PLACES
from umpteen.ranking.queries import Queries
from umpteen.ranking.thresholds import at_least
from umpteen.run_folder import RunFolder
from umpteen.types import TopK

HEAD_TITLES = {
    "dual": "Dual encoder",
    "classifier": "Classifier",
    "combined": "Combined",
    "ensemble": "Ensemble",
}
"""What a page calls the heads."""
PLACES = 5
"""Predictions of a query that are shown and counted for labels."""
_INSTEAD = "name the data with --data to score its test split instead"
# A run stores neither the number of its queries nor the propensity constants.
EXAMPLE_METRICS = tuple(name for name in DEFAULT_METRICS if not name.startswith("PS"))


@dataclass(frozen=True)
class HeadOutcome:
    """One head's numbers and first predictions."""

    values: dict[str, float]
    """Metric to percent."""
    bins: tuple[float, ...]
    """What each frequency bin, head to tail, brings to P@5, percent."""
    rows: NDArray[np.int64]
    """(N, up to 5) predicted label rows, -1 where there is none."""
    hits: NDArray[np.bool_]
    """(N, up to 5) whether they are right."""


@dataclass(frozen=True)
class Outcome:
    """All heads on the same queries."""

    heads: dict[str, HeadOutcome]
    """In the order of the model; the best one last."""
    split: str
    of_data: str | None
    """The name of the data, or None where the run's own examples were scored."""
    texts: Sequence[str]
    truth: sp.csr_matrix
    """(N, L) without filtered pairs."""
    labels: LabelSet
    """The run's, then those of the data that are not in the run."""
    label_counts: NDArray[np.int64]
    """(L,) training queries of each label."""
    propensity: Propensity | None = None
    n_filters: int = 0
    n_unknown: int = 0
    """Labels of examples that the run no longer has."""
    per_label: PerLabel | None = None
    """Precision, recall, F1 and support of each label, of the head in use."""

    @property
    def in_use(self) -> str:
        """The head that predictions come from."""
        return list(self.heads)[-1]

    def __len__(self) -> int:
        return len(self.texts)


def outcome_on_examples(predictor: Predictor, folder: RunFolder) -> Outcome:
    """Score the heads on the examples a run keeps.

    Args:
        predictor: The run's model.
        folder: The run.

    Returns:
        Values of all metrics that need no propensities.

    Raises:
        RunError: If the examples are missing or damaged.
    """
    examples = _read_examples(folder)
    known = predictor.labels.rows
    rows = [[known[label] for label in line["labels"] if label in known] for line in examples]
    n_unknown = sum(len(line["labels"]) for line in examples) - sum(map(len, rows))
    filters = _read_filters(examples, known)
    texts = [line["text"] for line in examples]
    truth = targets_from_rows(rows, len(predictor.labels))
    counts = np.asarray(predictor.label_counts)
    chosen = parse_all(EXAMPLE_METRICS)
    depth = min(max(getattr(metric, "k", None) or PLACES for metric in chosen), len(known))
    queries, snapshot = Queries(texts, predictor.vectors(texts)), predictor.snapshot()
    heads = {}
    for head in predictor.heads:
        top = predictor.rank(queries, snapshot, depth, head=head, exclude=filters)
        hits = find_hits(top, truth, label_counts=counts)
        heads[head] = HeadOutcome(
            values={str(metric): 100.0 * metric.mean(hits) for metric in chosen},
            bins=tuple((100.0 * contributions(hits, PLACES)).tolist()),
            rows=hits.rows[:, :PLACES],
            hits=hits.hits[:, :PLACES],
        )
    return Outcome(
        heads=heads,
        split=str(examples[0].get("split", "validation")),
        of_data=None,
        texts=texts,
        truth=truth,
        labels=predictor.labels,
        label_counts=counts,
        n_filters=len(filters),
        n_unknown=n_unknown,
        per_label=_score_labels(predictor, queries, filters, truth),
    )


def _score_labels(
    predictor: Predictor, queries: Queries, filters: NDArray[np.int64], truth: sp.csr_matrix
) -> PerLabel:
    """Score single labels of the head in use, on the sets of labels that it predicts."""
    head, snapshot = predictor.heads[-1], predictor.snapshot()
    places = min(SET_PLACES if head == ENSEMBLE else PLACES, snapshot.n_labels)
    predicted = predictor.rank(queries, snapshot, places, head=head, exclude=filters)
    rule = f"the first {PLACES} labels of each text"
    if predictor.ensemble is not None:
        threshold = predictor.ensemble.variant().calibration.threshold
        predicted = at_least(predicted, threshold)
        rule = f"labels with probability {threshold:.2f} or more"
    scores = label_scores(find_hits(predicted, truth))
    return PerLabel(head, rule, predictor.labels, (), np.asarray(predictor.label_counts), scores)


def outcome_on_split(predictor: Predictor, data: Dataset, split: str) -> Outcome:
    """Evaluate the heads on a split, keeping the first predictions of each.

    Args:
        predictor: The run's model.
        data: The data.
        split: Which part of it.

    Returns:
        The values ``umpteen evaluate`` gives, and the predictions they were made of.

    Raises:
        DataError: If the data has no such split, or none of the run's labels.
    """
    listener = _Listener(predictor)
    result = evaluate(cast(Predictor, listener), data, split=split)
    matched = match_split(data, split, predictor)
    part, truth = matched.split, matched.split.filtered_targets()
    heads = {
        head: HeadOutcome(
            values=dict(report.values),
            bins=report.bins,
            rows=listener.found[head].rows,
            hits=find_hits(listener.found[head], truth).hits,
        )
        for head, report in result.heads.items()
    }
    return Outcome(
        heads=heads,
        split=split,
        of_data=data.name,
        texts=list(part.texts(predictor.text_config.text)),
        truth=truth,
        labels=_with_unknown(predictor.labels, matched),
        label_counts=matched.label_counts,
        propensity=next(iter(result.heads.values())).propensity,
        n_filters=len(part.filters),
        per_label=result.per_label,
    )


def _with_unknown(labels: LabelSet, matched: MatchedSplit) -> LabelSet:
    """Return the run's labels, followed by those of the data that the run does not have."""
    if not matched.unknown:
        return labels
    ids, texts = zip(*matched.unknown, strict=True)
    return LabelSet([*labels.ids, *ids], [*labels.texts, *texts])


class _Listener:
    """A predictor that records the first places of its rankings, to encode nothing twice."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.found: dict[str, TopK] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._predictor, name)

    def as_trained(self) -> _Listener:
        self._predictor = self._predictor.as_trained()
        return self

    def rank(self, queries: Any, snapshot: Any, k: int, *, head: str, **options: Any) -> TopK:
        top = self._predictor.rank(queries, snapshot, k, head=head, **options)
        # Copies, for a view of five places would keep all the others in memory.
        self.found[head] = TopK(top.rows[:, :PLACES].copy(), top.scores[:, :PLACES].copy())
        return top


def _read_examples(folder: RunFolder) -> list[dict[str, Any]]:
    try:
        lines = folder.examples.read_bytes().splitlines()
    except FileNotFoundError:
        raise RunError(f"{folder.examples} is missing; {_INSTEAD}") from None
    examples = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            whole = isinstance(entry["text"], str) and isinstance(entry["labels"], list)
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise RunError(
                f'{folder.examples}, line {number}: expected {{"text": .., "labels": [..]}}; '
                f"{_INSTEAD}"
            )
        examples.append(entry)
    if not examples:
        raise RunError(f"{folder.examples} is empty; {_INSTEAD}")
    return examples


def _read_filters(examples: list[dict[str, Any]], known: Mapping[str, int]) -> NDArray[np.int64]:
    """Return (M, 2) pairs of example and label row that count neither as right nor as wrong."""
    pairs = [
        (row, known[label])
        for row, line in enumerate(examples)
        for label in line.get("filtered", [])
        if label in known
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)
