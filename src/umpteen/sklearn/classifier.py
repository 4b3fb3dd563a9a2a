"""``UmpteenClassifier``: umpteen's models behind the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from umpteen.data.dataset import Dataset, Split
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.predictor import Predictor
from umpteen.run_files import pack_run, unpack_run
from umpteen.sklearn.targets import (
    DENSE,
    LISTS,
    SINGLE,
    SPARSE,
    InputError,
    aligned,
    as_array,
    read_targets,
)
from umpteen.text_input import as_texts
from umpteen.types import TopK


class UmpteenClassifier(ClassifierMixin, BaseEstimator):
    """Assign labels to texts.

    X is a list, array or column of strings. y is an indicator matrix (dense or sparse), a list of
    labels for each text, or one label for each text; ``predict`` returns the same form.

    A fitted estimator has ``classes_`` (the labels, in the order of columns), ``label_counts_`` and
    ``n_train_`` (training texts of each label, and of all), and ``model_``, a
    ``umpteen.Predictor``. It owns a temporary run folder. Pickle, joblib and skops store the files
    of the run: safetensors, JSON and NumPy, no code.

    Args:
        threshold: ``predict`` returns labels with at least this probability: a number, ``"auto"``
            (best micro-F1 on validation) or ``"groups"``. Not used for one label for each text.
        max_labels: ``predict`` returns at most this many labels for each text.
        top_k: Labels for each text that ``predict_proba`` and ``decision_function`` score; the
            others get 0.
        max_dense_labels: With more labels, scores and predicted matrices are sparse.
        epochs: Passes over the training texts; chosen from the data if left out.
        minutes: A time budget for training.
        encoder: ``bag``, ``convolution``, or a Hugging Face folder or name.
        preset: A preset's name or a TOML file; settings are chosen from the data if left out.
        settings: Further settings: a mapping such as ``{"ensemble.lexical": False}``, or strings
            such as ``["ensemble.lexical=false"]``.
        label_texts: Texts of the labels, by label or in the order of ``classes_``.
        head: The head that predicts; the ensemble by default.
        device: ``auto``, ``cpu`` or ``cuda``.
        random_state: Seed of the run; that of the settings if left out.
        progress: Whether ``fit`` shows progress.
    """

    def __init__(
        self,
        *,
        threshold: float | str = "auto",
        max_labels: int = 20,
        top_k: int = 40,
        max_dense_labels: int = 5000,
        epochs: int | None = None,
        minutes: float | None = None,
        encoder: str | None = None,
        preset: str | None = None,
        settings: Mapping[str, Any] | Sequence[str] | None = None,
        label_texts: Mapping[Any, str] | Sequence[str] | None = None,
        head: str | None = None,
        device: str = "auto",
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.threshold = threshold
        self.max_labels = max_labels
        self.top_k = top_k
        self.max_dense_labels = max_dense_labels
        self.epochs = epochs
        self.minutes = minutes
        self.encoder = encoder
        self.preset = preset
        self.settings = settings
        self.label_texts = label_texts
        self.head = head
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - the name that scikit-learn uses
        """Train a model.

        Args:
            X: Texts: a list, array or column of strings.
            y: Their labels.

        Returns:
            This estimator.

        Raises:
            InputError: If texts or labels are of another kind, or their numbers differ.
        """
        from umpteen.training.api import train

        texts, targets = _read_texts(X), read_targets(y)
        if len(texts) != targets.matrix.shape[0]:
            raise InputError(
                f"X has {len(texts)} texts, but y has labels for {targets.matrix.shape[0]}"
            )
        if not targets.matrix.nnz:
            raise InputError("no text of y has any label; at least one is needed")
        names = [str(label) for label in targets.classes.tolist()]
        labels = LabelSet(names, self._label_texts(targets.classes.tolist(), names))
        data = Dataset(labels, {"train": Split(texts, targets.matrix)}, name="sklearn")
        model = train(
            data,
            preset=self.preset,
            overrides=self._overrides(),
            encoder=self.encoder,
            minutes=self.minutes,
            device=self.device,
            progress=bool(self.progress),
        )
        self.classes_ = targets.classes
        self.label_counts_ = np.asarray(targets.matrix.getnnz(axis=0), np.int64)
        self.n_train_ = len(texts)
        self.form_ = targets.form
        self.model_: Predictor = model
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the labels of texts, in the form of ``y``.

        Returns:
            An indicator matrix, an array of lists, or for one label for each text an array of
            labels. Matrices are sparse if ``y`` was or there are many labels.
        """
        texts = self._texts(X)
        if self.form_ == SINGLE:
            return self.classes_[self._scores(texts).argmax(axis=1)]
        top = self._top(texts, self.max_labels, threshold=self.threshold)
        if self.form_ == LISTS:
            found = np.empty(len(texts), object)
            found[:] = [self.classes_[row[row >= 0]].tolist() for row in top.rows]
            return found
        matrix = top.to_csr(len(self.classes_))
        matrix = sp.csr_matrix(
            (np.ones(matrix.nnz, np.int64), matrix.indices, matrix.indptr), shape=matrix.shape
        )
        return matrix if self._sparse() else matrix.toarray()

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return (N, L) the probability of each label.

        Probabilities of labels are independent; with one label for each text they add up to 1. The
        ``top_k`` best labels of a text have one, the others 0. Sparse if there are many labels.
        """
        scores = self._scores(self._texts(X))
        if self.form_ != SINGLE:
            return scores
        sums = np.asarray(scores.sum(axis=1)).reshape(-1, 1)
        if sp.issparse(scores):
            return sp.csr_matrix(sp.diags(1 / np.maximum(sums.ravel(), 1e-12)) @ scores)
        return np.where(sums > 0, scores / np.maximum(sums, 1e-12), 1 / scores.shape[1])

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """Return (N, L) scores that order the labels: the probabilities, or the head's scores.

        With one label for each text and two labels: (N,) the difference of both scores.
        """
        scores = self._scores(self._texts(X))
        if self.form_ == SINGLE and len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return micro-F1 of ``predict``; with one label for each text the accuracy."""
        if self._fitted().form_ == SINGLE:
            return float(super().score(X, y, sample_weight))
        truth = aligned(y, self.classes_)
        rows = self._top(self._texts(X), self.max_labels, threshold=self.threshold)
        found = rows.to_csr(truth.shape[1])
        weights = np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight)
        found.data[:] = 1
        right = weights @ np.asarray(found.multiply(truth).sum(axis=1)).ravel()
        total = weights @ (np.diff(found.indptr) + np.diff(truth.indptr))
        return float(2 * right / total) if total else 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        model = state.pop("model_", None)
        if model is not None:
            state["run_files_"] = pack_run(model.folder, model.labels)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files = state.pop("run_files_", None)
        super().__setstate__(state)
        if files is not None:
            run = unpack_run(files)
            self.model_ = Predictor.load(run.path, device=self.device)
            self.model_.temporary = run

    def _overrides(self) -> list[str]:
        from umpteen.training.api import as_overrides

        given: dict[str, Any] = {}
        if self.epochs is not None:
            given["train.epochs"] = int(self.epochs)
        if self.random_state is not None:
            state = self.random_state
            seed = state if isinstance(state, int | np.integer) else None
            given["seed"] = int(
                check_random_state(state).randint(2**31 - 1) if seed is None else seed
            )
        return [*as_overrides(self.settings or {}), *as_overrides(given)]

    def _label_texts(self, classes: list[Any], names: list[str]) -> list[str]:
        given = self.label_texts
        if given is None:
            return names
        if isinstance(given, Mapping):
            return [str(given.get(label, given.get(str(label), label))) for label in classes]
        if len(given) != len(classes):
            raise InputError(f"{len(given)} label texts for {len(classes)} labels; give as many")
        return [str(text) for text in given]

    def _fitted(self) -> Self:
        check_is_fitted(self, "model_")
        return self

    def _texts(self, X: Any) -> list[str]:  # noqa: N803
        self._fitted()
        return _read_texts(X)

    def _sparse(self) -> bool:
        many = len(self.classes_) > self.max_dense_labels
        return self.form_ == SPARSE or (self.form_ == DENSE and many)

    def _top(self, texts: list[str], k: int, **options: Any) -> TopK:
        return self.model_.predict(texts, k, head=self.head, **options)

    def _scores(self, texts: list[str]) -> NDArray[np.float64] | sp.csr_matrix:
        top = self._top(texts, min(self.top_k, len(self.classes_)))
        matrix = top.to_csr(len(self.classes_)).astype(np.float64)
        return matrix if len(self.classes_) > self.max_dense_labels else matrix.toarray()


def _read_texts(X: Any) -> list[str]:  # noqa: N803
    """Return X as a list of texts."""
    try:
        return as_texts(as_array(X), name="X")
    except DataError as error:
        raise InputError(str(error)) from error
