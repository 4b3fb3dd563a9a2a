"""Metrics of a model on labelled texts: rank, then score. No metric is defined here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.data.as_dataset import as_dataset
from umpteen.data.dataset import Dataset, Propensity, Split
from umpteen.data.labels import LabelSet
from umpteen.data.tokens import TokenStore
from umpteen.display import Cell, counted, html_table
from umpteen.errors import ConfigError, DataError
from umpteen.extras import require
from umpteen.head_names import ENSEMBLE
from umpteen.metrics import DEFAULT_METRICS, measures_sets, parse_all
from umpteen.metrics.hits import find_hits
from umpteen.metrics.per_label import label_scores
from umpteen.per_label import PerLabel
from umpteen.predictor import Predictor
from umpteen.ranking.calibration import PLACES
from umpteen.ranking.queries import Queries
from umpteen.ranking.thresholds import at_least, set_metrics
from umpteen.ranking.trained_examples import digest_texts
from umpteen.scoring import Report, score
from umpteen.sorted_unique import sorted_unique
from umpteen.types import TopK

FIRST_PLACES = 5
"""Labels of a text that count as predicted where scores are no probabilities."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A report for each head."""

    heads: dict[str, Report]
    sets: dict[str, Any] | None = None
    """Of the ensemble: how well its probabilities are calibrated, and the sets of labels above
    its thresholds."""
    unknown_labels: int = 0
    """Labels of the data that are not in the run; they count as misses."""
    trained_texts: int = 0
    """Texts that are among the training texts stored with the run: their metrics are too good."""
    per_label: PerLabel | None = None
    """Precision, recall, F1 and support of each label, of the last head."""

    def __getitem__(self, head: str) -> Report:
        if head not in self.heads:
            raise KeyError(f"no head {head!r}; there are {', '.join(self.heads)}")
        return self.heads[head]

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``umpteen evaluate --json``; values in percent."""
        reports = list(self.heads.values())
        document = {
            "heads": {head: dict(report.values) for head, report in self.heads.items()},
            "propensity": {"a": reports[0].propensity.a, "b": reports[0].propensity.b},
            "n": reports[0].n,
            "unknown_labels": self.unknown_labels,
        }
        return document if self.sets is None else {**document, "sets": self.sets}

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: a row for each metric, a column for each head."""
        pandas = require("pandas", extra="pandas")
        return pandas.DataFrame({head: report.values for head, report in self.heads.items()})

    def __repr__(self) -> str:
        n = next((report.n for report in self.heads.values()), 0)
        lines = [
            f"  {head}: "
            + ", ".join(f"{name} {value:.2f}" for name, value in report.values.items())
            for head, report in self.heads.items()
        ]
        return "\n".join([f"Evaluation({counted(n, 'text')})", *lines])

    def _repr_html_(self) -> str:
        metrics = list(next(iter(self.heads.values())).values) if self.heads else []
        rows: list[list[Cell]] = [
            [metric, *(float(report.values[metric]) for report in self.heads.values())]
            for metric in metrics
        ]
        n = next((report.n for report in self.heads.values()), 0)
        unknown = self.unknown_labels
        notes = [f"{counted(unknown, 'label')} of the data not in the run"] if unknown else []
        if self.trained_texts:
            notes.append(f"{self.trained_texts:,} are training texts of the run")
        more = "; ".join(notes)
        caption = f"{counted(n, 'text')}, percent"
        names = ["metric", *self.heads]
        return html_table(names, rows, caption=caption, more=more, number=".2f")


@dataclass(frozen=True)
class MatchedSplit:
    """Labelled texts in the label rows of a run."""

    split: Split
    label_counts: NDArray[np.int64]
    n_train: int
    unknown: tuple[tuple[str, str], ...] = ()
    """Ids and texts of labels that are not in the run, in the order of their rows."""


def evaluate(
    model: Predictor | str | Path,
    data: Any,
    labels: Any = None,
    *,
    split: str = "test",
    head: str = "all",
    metrics: Sequence[str] = DEFAULT_METRICS,
    tokens: TokenStore | None = None,
    vectors: torch.Tensor | None = None,
    without: Iterable[str] = (),
    per_query: bool = False,
    classes: Sequence[Any] | None = None,
    text_column: str | Sequence[str] | None = None,
    label_column: str | Sequence[str] | None = None,
    separator: str | None = None,
    ranks: Ranks = ONE_RANK,
) -> Evaluation:
    """Compute metrics of a model on labelled texts.

    Labels are matched by id. Labels that are not in the run count as misses. Filter pairs are
    excluded from the search and from the truth. Label frequencies come from the data's own train
    split where it has the run's labels, else from the run; propensity constants from the run where
    they were set there, else from the data.

    Args:
        model: A predictor, or the folder of a run; changes made after its training do not count.
        data: A data set, a path, a table, or texts, as ``umpteen.train`` takes them. Data without
            splits is evaluated whole.
        labels: The labels of texts, as ``umpteen.train`` takes them.
        split: Which part.
        head: ``dual``, ``classifier``, ``combined``, ``ensemble``, or ``all``.
        metrics: What to compute.
        tokens: The split's tokens, where they are known already.
        vectors: (N, heads * dim) the split's search vectors, where they are encoded already.
        without: Scorers that the ensemble leaves out.
        per_query: Whether reports keep the values of each query, for paired tests.
        classes: Label ids in the column order of an indicator matrix.
        text_column: The column with the text, for paths and tables; found by name if left out.
        label_column: The column with the labels, or a list of columns.
        separator: Stands between the labels of a cell.
        ranks: From ``start_ranks``; each encodes and ranks an even share of the texts.

    Returns:
        A report per head, in percent; the same on every rank.
    """
    model = _as_model(model).as_trained()
    columns: dict[str, Any] = dict(text_column=text_column, label_column=label_column)
    columns |= dict(classes=classes, separator=separator, known_labels=model.labels.ids)
    data = as_dataset(data, labels, **columns)
    heads = model.heads if head == "all" else (model.require_head(head),)
    given: dict[str, Any] = dict(tokens=tokens, vectors=vectors, per_query=per_query, ranks=ranks)
    measured = _Measurement(model, data, split, _by_kind(metrics, heads), **given)
    reports, sets = {}, None
    for name in heads:
        left_out = tuple(without) if name == ENSEMBLE or head != "all" else ()
        reports[name], found, shown = measured.measure(name, left_out)
        sets = found or sets
    counts = len(measured.matched.unknown), measured.trained_texts()
    return Evaluation(reports, sets, *counts, measured.per_label(name, *shown))


def _as_model(model: Any) -> Predictor:
    """Return a model, or that of a run folder.

    Raises:
        ConfigError: If it is something else.
    """
    if isinstance(model, str | Path):
        return Predictor.load(model)
    if not hasattr(model, "as_trained"):
        raise ConfigError(
            f"the model is {type(model).__name__}; pass a Predictor or the folder of a run, and "
            "the data after it"
        )
    found: Predictor = model
    return found


class _Measurement:
    """Labelled texts, encoded once, and what the heads of a model make of them.

    Args:
        model: As it was trained.
        data: With the split.
        split: Which part.
        names: What to compute.
        tokens: The split's tokens, where they are known already.
        vectors: The split's search vectors, where they are encoded already.
        per_query: Whether reports keep the values of each query.
        ranks: Who ranks which texts: an even share each, in order.
    """

    def __init__(
        self,
        model: Predictor,
        data: Dataset,
        split: str,
        names: _Metrics,
        *,
        tokens: TokenStore | None,
        vectors: torch.Tensor | None,
        per_query: bool,
        ranks: Ranks,
    ) -> None:
        self.model, self.names, self.matched = model, names, match_split(data, split, model)
        self._part, self._per_query = self.matched.split, per_query
        part = self._part
        self._texts = list(part.texts(model.text_config.text))
        if vectors is None and tokens is not None:
            vectors = model.encoder.token_vectors(tokens)
        # Few texts are ranked by every rank, for itself.
        self._ranks = ranks if len(self._texts) >= ranks.world else ONE_RANK
        own = self._ranks.shard(len(self._texts))
        texts = self._texts[own.start : own.stop]
        vectors = model.vectors(texts) if vectors is None else vectors[own.start : own.stop]
        self._queries, self._snapshot = Queries(texts, vectors), model.snapshot()
        # Excluded labels that are not in the run are never predicted.
        exclude = part.filters[part.filters[:, 1] < self._snapshot.n_labels]
        here = (exclude[:, 0] >= own.start) & (exclude[:, 0] < own.stop)
        self._exclude = exclude[here] - np.array([own.start, 0])
        self._truth = part.filtered_targets()
        self._options: dict[str, Any] = {
            "label_counts": self.matched.label_counts,
            "n_train": self.matched.n_train,
            "propensity": model.propensity or _propensity(data, model),
        }

    def measure(
        self, head: str, without: tuple[str, ...]
    ) -> tuple[Report, dict[str, Any] | None, tuple[TopK, str]]:
        """Return the report of a head, its label sets, and which labels count as predicted."""
        names, ensemble = self.names, self.model.ensemble
        top = self._rank(head, names.depth, without)
        report = score(
            top, self._part, metrics=names.of_places, per_query=self._per_query, **self._options
        )
        if head != ENSEMBLE or ensemble is None:
            shown = top.cut(FIRST_PLACES), f"the first {FIRST_PLACES} labels of each text"
            return report, None, shown
        # Deeper rankings have more candidates, which moves probabilities: sets are measured
        # as users get them.
        deep = top if names.depth == PLACES else self._rank(head, PLACES, without)
        calibration = ensemble.variant(without).calibration
        counts = _padded(self._snapshot.label_counts, self._part.targets.shape[1])
        sets = set_metrics(deep, self._truth, calibration, counts)
        predicted = at_least(deep, calibration.threshold)
        of_sets = score(predicted, self._part, metrics=names.of_sets, **self._options)
        values = report.values | of_sets.values
        report = replace(report, values={key: values[key] for key in names.keys})
        rule = f"labels with probability {calibration.threshold:.2f} or more"
        return report, sets, (predicted, rule)

    def per_label(self, head: str, predicted: TopK, rule: str) -> PerLabel:
        """Return precision, recall, F1 and support of each label."""
        own, scores = self.matched, label_scores(find_hits(predicted, self._truth))
        return PerLabel(head, rule, self.model.labels, own.unknown, own.label_counts, scores)

    def trained_texts(self) -> int:
        """Return how many of the texts are stored with the run as training texts."""
        stored = self._snapshot.examples.trained
        if stored is None:
            return 0
        return int(np.isin(digest_texts(self._texts), stored.digests).sum())

    def _rank(self, head: str, k: int, without: tuple[str, ...]) -> TopK:
        k, snapshot = min(k, self._snapshot.n_labels), self._snapshot
        top = self.model.rank(
            self._queries, snapshot, k, head=head, exclude=self._exclude, without=without
        )
        if not self._ranks.exchanges:
            return top
        bounds = self._ranks.bounds(len(self._texts))
        rows, scores = (
            self._ranks.concatenate(torch.from_numpy(part), bounds).numpy()
            for part in (top.rows, top.scores)
        )
        return TopK(rows, scores, top.labels, queries=self._texts)


@dataclass(frozen=True)
class _Metrics:
    """Metrics as they were named, by what they measure."""

    of_places: list[str]
    of_sets: list[str]
    keys: list[str]
    """What all of them are called in a report."""
    depth: int
    """Places that they look at."""


def _by_kind(names: Sequence[str], heads: Sequence[str]) -> _Metrics:
    """Return the metrics that measure places and those that measure label sets.

    Raises:
        ConfigError: If a metric is not known, or none of the heads has label sets.
    """
    parsed = parse_all(names)
    of_sets = [name for name, metric in zip(names, parsed, strict=True) if measures_sets(metric)]
    _require_sets(of_sets, heads)
    of_places = [name for name in names if name not in of_sets]
    depth = max([*(getattr(metric, "k", None) or 0 for metric in parsed), FIRST_PLACES])
    return _Metrics(of_places, of_sets, [str(metric) for metric in parsed], depth)


def _require_sets(of_sets: Sequence[str], heads: Sequence[str]) -> None:
    """Raise if label sets are to be measured and no head has probabilities."""
    if of_sets and ENSEMBLE not in heads:
        raise ConfigError(
            f"{of_sets[0]} measures the labels above a threshold, which needs the head "
            f"{ENSEMBLE!r}; the head is {heads[-1]!r}. Write {of_sets[0]}@5 for the first 5 labels"
        )


def match_split(data: Dataset, split: str, model: Predictor) -> MatchedSplit:
    """Bring a split into the label rows of a run; unknown labels get further rows.

    Data with a single split has no other to name: that split is returned.

    Raises:
        DataError: If the data has no such split, or no label of it is in the run.
    """
    whole = split not in data and len(data.splits) == 1
    part = data.part(split)
    same = list(data.labels.ids) == list(model.labels.ids)
    if same and "train" in data and not whole:
        return MatchedSplit(part, np.asarray(data.label_counts), len(data["train"]))
    rows, unknown = _rows_in(model.labels, data.labels, part)
    n, n_unknown = len(model.labels), len(unknown)
    if n_unknown == len(sorted_unique(part.targets.indices)) and part.targets.nnz:
        some = ", ".join(repr(label_id) for label_id in list(data.labels.ids)[:3])
        raise DataError(
            f"no label of the data is in the run ({some}, ..); labels are matched by id, so check "
            "that the data has the ids the run was trained with"
        )
    pairs = part.targets.tocoo()
    targets = sp.csr_matrix(
        (pairs.data, (pairs.row, rows[pairs.col])), shape=(len(part), n + n_unknown)
    )
    targets.sort_indices()
    filters = part.filters.copy()
    filters[:, 1] = rows[filters[:, 1]]
    filters = filters[filters[:, 1] >= 0]
    counts = _padded(model.label_counts, n + n_unknown)
    n_train = max(1, model.n_train, int(counts.max(initial=0)))
    matched = replace(part, targets=targets, filters=filters)
    ids, texts = data.labels.ids, data.labels.texts
    return MatchedSplit(
        matched, counts, n_train, tuple((ids[r], texts[r]) for r in unknown.tolist())
    )


def _rows_in(
    ours: LabelSet, theirs: LabelSet, part: Split
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (L',) our row of each of their labels, and (U,) their rows of unknown ones.

    Unknown ones with positives follow ours, others -1.
    """
    known = ours.rows
    rows = np.array([known.get(label_id, -1) for label_id in theirs.ids], np.int64)
    used = np.zeros(len(rows), np.bool_)
    used[part.targets.indices] = True
    unknown = np.flatnonzero(used & (rows < 0))
    rows[unknown] = len(ours) + np.arange(len(unknown))
    return rows, unknown


def _propensity(data: Dataset, model: Predictor) -> Propensity:
    if "train" in data or model.ensemble is None:
        return data.propensity
    return Propensity(model.ensemble.propensity.a, model.ensemble.propensity.b)


def _padded(counts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(n - len(counts), np.int64)])
