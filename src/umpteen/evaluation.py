"""Metrics of a model on labelled texts: rank, then score. No metric is defined here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, Propensity, Split
from umpteen.data.formats import load_dataset
from umpteen.data.labels import LabelSet
from umpteen.data.tokens import TokenStore
from umpteen.errors import DataError
from umpteen.head_names import ENSEMBLE
from umpteen.metrics import DEFAULT_METRICS, parse_all
from umpteen.predictor import Predictor
from umpteen.ranking.calibration import PLACES
from umpteen.ranking.queries import Queries
from umpteen.ranking.thresholds import set_metrics
from umpteen.scoring import Report, score
from umpteen.types import TopK


@dataclass(frozen=True)
class Evaluation:
    """A report for each head."""

    heads: dict[str, Report]
    sets: dict[str, Any] | None = None
    """Of the ensemble: how well its probabilities are calibrated, and the sets of labels above
    its thresholds."""
    unknown_labels: int = 0
    """Labels of the data that are not in the run; they count as misses."""

    def __getitem__(self, head: str) -> Report:
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


@dataclass(frozen=True)
class _Matched:
    """Labelled texts in the label rows of a run."""

    split: Split
    label_counts: NDArray[np.int64]
    n_train: int
    unknown: int


def evaluate(
    model: Predictor,
    data: Dataset | str | Path,
    *,
    split: str = "test",
    head: str = "all",
    metrics: Sequence[str] = DEFAULT_METRICS,
    tokens: TokenStore | None = None,
    without: Iterable[str] = (),
) -> Evaluation:
    """Compute metrics of a model on labelled texts.

    Labels are matched by id. Labels that are not in the run count as misses. Filter pairs are
    excluded from the search and from the truth. Label frequencies come from the data's own train
    split where it has the run's labels, else from the run; propensity constants from the run where
    they were set there, else from the data.

    Args:
        model: A predictor; changes made after its training do not count.
        data: A data set, or where one can be read. A file without splits is evaluated whole.
        split: Which part.
        head: ``dual``, ``classifier``, ``combined``, ``ensemble``, or ``all``.
        metrics: What to compute.
        tokens: The split's tokens, where they are known already.
        without: Scorers that the ensemble leaves out.

    Returns:
        A report per head, in percent.

    Raises:
        DataError: If no label of the data is known to the run.
        ConfigError: If the model has no such head, or a metric is not known.
    """
    if not isinstance(data, Dataset):
        data = load_dataset(data)
    model = model.as_trained()
    matched = _match(data, split, model)
    part = matched.split
    texts = part.texts(model.text_config.text)
    vectors = model.vectors(texts) if tokens is None else model.encoder.token_vectors(tokens)
    queries, snapshot = Queries(texts, vectors), model.snapshot()
    chosen = [metric.k for metric in parse_all(metrics) if hasattr(metric, "k") and metric.k]
    depth = max([*chosen, 5])
    left_out, n_known = tuple(without), snapshot.n_labels
    # Excluded labels that are not in the run are never predicted.
    exclude = part.filters[part.filters[:, 1] < n_known]
    reports, sets = {}, None
    for name in model.heads if head == "all" else (head,):
        own = left_out if name == ENSEMBLE or head != "all" else ()

        def ranked(k: int, name: str = name, own: tuple[str, ...] = own) -> TopK:
            k = min(k, n_known)
            return model.rank(queries, snapshot, k, head=name, exclude=exclude, without=own)

        top = ranked(depth)
        if name == ENSEMBLE and model.ensemble is not None:
            # Deeper rankings have more candidates, which moves probabilities: sets are measured
            # as users get them.
            shown = top if depth == PLACES else ranked(PLACES)
            calibration = model.ensemble.variant(left_out).calibration
            counts = _padded(snapshot.label_counts, part.targets.shape[1])
            sets = set_metrics(shown, part.filtered_targets(), calibration, counts)
        reports[name] = score(
            top,
            part,
            label_counts=matched.label_counts,
            n_train=matched.n_train,
            propensity=model.propensity or _propensity(data, model),
            metrics=metrics,
        )
    return Evaluation(reports, sets, matched.unknown)


def _match(data: Dataset, split: str, model: Predictor) -> _Matched:
    """Bring a split into the label rows of a run; unknown labels get further rows."""
    whole = split not in data and len(data.splits) == 1
    part = _only(data) if whole else data[split]
    same = list(data.labels.ids) == list(model.labels.ids)
    if same and "train" in data and not whole:
        return _Matched(part, np.asarray(data.label_counts), len(data["train"]), 0)
    rows, n_unknown = _rows_in(model.labels, data.labels, part)
    n = len(model.labels)
    if n_unknown == len(np.unique(part.targets.indices)) and part.targets.nnz:
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
    n_train = max(model.n_train, int(counts.max(initial=0)))
    matched = replace(part, targets=targets, filters=filters)
    return _Matched(matched, counts, n_train, n_unknown)


def _rows_in(ours: LabelSet, theirs: LabelSet, part: Split) -> tuple[NDArray[np.int64], int]:
    """Return (L',) our row of each of their labels.

    Unknown ones with positives follow ours, others -1.
    """
    known = ours.rows
    rows = np.array([known.get(label_id, -1) for label_id in theirs.ids], np.int64)
    used = np.zeros(len(rows), np.bool_)
    used[part.targets.indices] = True
    unknown = np.flatnonzero(used & (rows < 0))
    rows[unknown] = len(ours) + np.arange(len(unknown))
    return rows, len(unknown)


def _only(data: Dataset) -> Split:
    return next(iter(data.splits.values()))


def _propensity(data: Dataset, model: Predictor) -> Propensity:
    if "train" in data or model.ensemble is None:
        return data.propensity
    return Propensity(model.ensemble.propensity.a, model.ensemble.propensity.b)


def _padded(counts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    return np.concatenate([counts, np.zeros(n - len(counts), np.int64)])
