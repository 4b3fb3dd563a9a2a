"""Scorers for rankings of labels (P@k, PSP@k, nDCG@k) that any scikit-learn estimator can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Propensity, Split
from umpteen.errors import ConfigError, DataError
from umpteen.metrics import parse_all
from umpteen.scoring import score
from umpteen.sklearn.targets import aligned, read_targets
from umpteen.types import TopK


@dataclass(frozen=True)
class RankingScorer:
    """Compute a ranking metric from the scores of an estimator, 0 to 1; larger is better."""

    metric: str
    label_counts: tuple[int, ...] | None = None
    n_train: int | None = None
    propensity: Propensity = Propensity()

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
        """Return the metric of an estimator on labelled texts.

        Raises:
            DataError: If the estimator has no scores, or label counts are needed and not known.
        """
        classes = np.asarray(estimator.classes_)
        truth = aligned(y, classes)
        metric = parse_all([self.metric])[0]
        scores = _scores(estimator, X)
        k = int(getattr(metric, "k", 0) or scores.shape[1])
        counts, n_train = self._counts(estimator, len(classes))
        more = np.zeros(truth.shape[1] - len(classes), np.int64)
        report = score(
            _top(scores, k),
            Split([""] * truth.shape[0], truth),
            label_counts=np.concatenate([counts, more]),
            n_train=n_train,
            propensity=self.propensity,
            metrics=[self.metric],
        )
        return report.values[str(metric)] / 100.0

    def _counts(self, estimator: Any, n_labels: int) -> tuple[NDArray[np.int64], int]:
        """Return the labels' training texts and the number of training texts."""
        if self.label_counts is not None:
            if len(self.label_counts) != n_labels:
                raise DataError(
                    f"the scorer has the counts of {len(self.label_counts)} labels, the estimator "
                    f"has {n_labels}"
                )
            return np.array(self.label_counts, np.int64), self.n_train or max(self.label_counts)
        for each in _unwrapped(estimator):
            if hasattr(each, "label_counts_"):
                return np.asarray(each.label_counts_, np.int64), int(each.n_train_)
        if self.metric.startswith("PS"):
            raise DataError(
                f"{self.metric} needs the training texts of each label, and the estimator does not "
                f"have them; use ranking_scorer({self.metric!r}, y_train=y_train)"
            )
        return np.zeros(n_labels, np.int64), 1


def ranking_scorer(
    metric: str, *, y_train: Any = None, propensity: tuple[float, float] = (0.55, 1.5)
) -> RankingScorer:
    """Return a scorer for ``cross_val_score``, ``GridSearchCV`` and the like.

    Args:
        metric: Such as ``"P@1"``, ``"nDCG@5"`` or ``"PSP@3"``.
        y_train: Training labels, for metrics with propensities; those of an
            ``UmpteenClassifier`` are known.
        propensity: The constants a and b of the propensity model.

    Returns:
        A callable with estimator, X and y.

    Raises:
        ConfigError: If the metric is not known.

    Example:
        >>> ranking_scorer("P@1").metric
        'P@1'
    """
    parse_all([metric])
    if len(propensity) != 2:
        raise ConfigError(f"propensity is {propensity!r}; give two numbers, a and b")
    constants = Propensity(*map(float, propensity))
    if y_train is None:
        return RankingScorer(metric, propensity=constants)
    matrix = read_targets(y_train).matrix
    counts = tuple(np.asarray(matrix.getnnz(axis=0)).tolist())
    return RankingScorer(metric, counts, matrix.shape[0], constants)


def _unwrapped(estimator: Any) -> list[Any]:
    """Return an estimator and what it wraps: the best of a search, the last of a pipeline."""
    found = [estimator]
    while True:
        last = found[-1]
        inner = getattr(last, "best_estimator_", None)
        if inner is None and hasattr(last, "steps"):
            inner = last.steps[-1][1]
        if inner is None:
            return found
        found.append(inner)


def _scores(estimator: Any, texts: Any) -> NDArray[Any] | sp.csr_matrix:
    """Return (N, L) scores."""
    for method in ("decision_function", "predict_proba"):
        if hasattr(estimator, method):
            scores = getattr(estimator, method)(texts)
            break
    else:
        raise DataError(
            f"{type(estimator).__name__} has no decision_function or predict_proba; ranking "
            "metrics need scores"
        )
    if sp.issparse(scores):
        return sp.csr_matrix(scores)
    array = np.asarray(scores)
    return array if array.ndim == 2 else np.stack([-array, array], axis=1)


def _top(scores: NDArray[Any] | sp.csr_matrix, k: int) -> TopK:
    """Return the k best columns of each row; ties by the smaller column."""
    k = min(k, scores.shape[1])
    if sp.issparse(scores):
        return _sparse_top(scores, k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, 1).astype(np.float32)
    return TopK(order.astype(np.int64), best)


def _sparse_top(scores: sp.csr_matrix, k: int) -> TopK:
    matrix = sp.csr_matrix(scores)
    lengths: Sequence[int] = np.diff(matrix.indptr)
    queries = np.repeat(np.arange(matrix.shape[0]), lengths)
    order = np.lexsort((matrix.indices, -matrix.data, queries))
    places = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], lengths)
    kept = places < k
    rows = np.full((matrix.shape[0], k), -1, np.int64)
    best = np.full((matrix.shape[0], k), -np.inf, np.float32)
    rows[queries[kept], places[kept]] = matrix.indices[order][kept]
    best[queries[kept], places[kept]] = matrix.data[order][kept]
    return TopK(rows, best)
