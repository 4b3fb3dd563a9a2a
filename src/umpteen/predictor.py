"""From text to labels: encode, take a snapshot, rank. Needs nothing of training."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.compute.precision import choose_device
from umpteen.data.dataset import Propensity
from umpteen.data.labels import LabelSet
from umpteen.data.tokens import prepare
from umpteen.display import counted
from umpteen.errors import ConfigError, RunError
from umpteen.head_names import ENSEMBLE, require_ensemble
from umpteen.label_indexes import load_label_indexes
from umpteen.model.exported_encoder import load_exported
from umpteen.model.model import Model, place_model
from umpteen.model.storage import TextConfig, load_model, load_vectors
from umpteen.model.text_encoder import TextEncoder
from umpteen.model.vectors import available_heads, head_columns
from umpteen.predictor_changes import ChangeableRun, LoadOptions
from umpteen.ranking.encoded_changes import EncodedChanges
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.queries import Queries, QueryStream
from umpteen.ranking.ranker import EnsembleRanker
from umpteen.ranking.reranking.cost import TIMED_TEXTS
from umpteen.ranking.reranking.spec import Reranking
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.snapshot_source import SnapshotSource, fit_with, initial_snapshot
from umpteen.ranking.storage import StoredEnsemble, load_ensemble
from umpteen.ranking.thresholds import keep_above, require_threshold, thresholds_of_labels
from umpteen.run_files import TemporaryRun
from umpteen.run_folder import UNTRAINED, RunFolder
from umpteen.store import ChangeStore
from umpteen.store.vector_cache import VectorCache
from umpteen.text_input import as_texts
from umpteen.types import TopK

DEFAULT_K, DEFAULT_K_ABOVE = 10, 20
"""Labels per text by default, without and with a threshold."""


class Predictor(ChangeableRun):
    """A trained model with its labels.

    Load one with ``Predictor.load("run")``; ``umpteen.train`` returns one too. Threads may share
    it: every call reads labels and examples once, as one snapshot. A pickle holds the path of the
    run folder, which the other process maps; that of a temporary run holds its files.

    Args:
        model: In evaluation mode, on its device.
        tokenizer: The model's tokenizer.
        text_config: What is read of a text.
        labels: The labels it was trained with.
        vectors: (L, heads * dim) search vectors of the labels, NumPy or torch; or ``LabelVectors``.
        label_counts: (L,) training texts of each label.
        propensity: Constants to evaluate with instead of the data's own.
        low_memory: Keep one head's exact index at a time, and let vectors on another device than
            the model's visit it block by block.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Any,
        text_config: TextConfig,
        labels: LabelSet,
        vectors: Any,
        label_counts: NDArray[np.int64],
        propensity: Propensity | None = None,
        *,
        low_memory: bool = False,
    ) -> None:
        self.model = model
        self.text_config = text_config
        self.labels = labels
        self.label_counts = label_counts
        self.propensity = propensity
        self.n_train = 0
        """Training texts, where the predictor was loaded from a run folder."""
        self.folder: Path | None = None
        """The run folder, where it was loaded from one."""
        self.temporary: TemporaryRun | None = None
        """Holds the run folder of a model that was trained without ``out`` and not saved yet."""
        self.load_options = LoadOptions()
        """How it was loaded from its run folder."""
        self.encoder = TextEncoder(model, tokenizer, text_config)
        columns = {head: head_columns(model, head) for head in available_heads(model)}
        device = self.encoder.device
        if not isinstance(vectors, LabelVectors):
            vectors = LabelVectors(vectors, columns, device, low_memory=low_memory)
        self.label_vectors = vectors
        self.store: ChangeStore | None = None
        self._model_key = ""
        self.ensemble: EnsembleModel | None = None
        """The fitted ensemble, where there is one; it is then the default head."""
        self._ranker: EnsembleRanker | None = None
        self._source = self._snapshots(None)

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        which: str = "best",
        with_indexes: bool = True,
        with_ensemble: bool = True,
        tolerant: bool = False,
        backend: str = "torch",
    ) -> Self:
        """Read a run folder.

        Args:
            run: The folder.
            device: ``auto``, ``cpu`` or ``cuda``.
            which: The ``best`` model by validation, or the ``last``.
            with_indexes: Use what ``umpteen index`` built (for the best model), else exact search.
            with_ensemble: Use the ensemble (of the best model) where it was fitted.
            tolerant: Predict from what can be read of a damaged store instead of raising.
            backend: What runs a transformer: ``torch``, or ``onnx`` or ``openvino`` on the CPU,
                exported to ``RUN/backends`` before.

        Returns:
            The predictor. It follows the run's changes of labels and examples as they are made.

        Raises:
            RunError: If the folder is not a complete run.
            LabelMismatch: If its files belong to different labels.
        """
        folder = RunFolder(run).require()
        model_folder = folder.model(which)
        if model_folder.name == UNTRAINED:
            raise RunError(f"{folder.path} holds no trained model yet; continue it with --resume")
        model, tokenizer, text_config = load_model(model_folder, mapped=True)
        tokenizer = prepare(tokenizer, text_config.max_tokens, owned=True)
        labels, counts = folder.read_labels(text_config.label_fingerprint)
        # Predictions use the search vectors: the trained table stays in its file.
        place = choose_device(device if backend == "torch" else "cpu")
        model = place_model(model, place, labels_on_host=True)
        vectors = load_vectors(model_folder, model)
        predictor = cls(model, tokenizer, text_config, labels, vectors, counts, folder.propensity())
        if backend != "torch":
            predictor.encoder = load_exported(predictor.encoder, folder.path, backend)
        predictor.folder, predictor.n_train = folder.path, folder.n_train()
        predictor.load_options = LoadOptions(device, which, with_indexes, with_ensemble, tolerant)
        written = (model_folder / "model.json").stat().st_mtime_ns
        predictor._model_key = f"{model_folder.name} {written} {text_config.label_fingerprint}"
        predictor.store = ChangeStore.open(folder.path, labels, tolerant=tolerant)
        best, name = model_folder == folder.model("best"), model_folder.name
        if with_indexes and best:
            load_label_indexes(folder, name, predictor.label_vectors)
        stored = None
        if with_ensemble and best:
            again = f"umpteen fit-ensemble {folder.path} DATA"
            parts = predictor.label_vectors, predictor.encoder
            stored = load_ensemble(folder.ensemble, *parts, model=name, again=again)
        predictor.use_ensemble(stored)
        return predictor

    def use_ensemble(self, stored: StoredEnsemble | None) -> None:
        """Predict with an ensemble from now on, or with the model's own heads alone."""
        self.ensemble = None if stored is None else stored.model
        self._ranker = None
        if stored is not None:
            self._ranker = EnsembleRanker(stored.model, stored.retrievers, stored.reranker)
        self._source = self._snapshots(stored)

    def __repr__(self) -> str:
        where = "" if self.folder is None else f"{str(self.folder)!r}, "
        return f"Predictor({where}{counted(len(self.labels), 'label')}, head {self.heads[-1]!r})"

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads, the default one last."""
        return self.vector_heads if self._ranker is None else (*self.vector_heads, ENSEMBLE)

    @property
    def vector_heads(self) -> tuple[str, ...]:
        """The heads that search label vectors: all but the ensemble."""
        return self.label_vectors.heads

    def snapshot(self, *, wait: bool = True) -> Snapshot:
        """Return labels and examples as they are now.

        Args:
            wait: Whether to wait while another thread encodes a change; otherwise the snapshot
                before it is returned.
        """
        return self._source.current(wait=wait)

    def as_trained(self) -> Self:
        """Return the predictor without changes since training: what metrics are about."""
        trained = copy.copy(self)
        trained.store = None
        trained._source = self._source.without_changes()
        return trained

    def predict(
        self,
        texts: Iterable[str] | str,
        k: int | None = None,
        *,
        head: str | None = None,
        threshold: float | str | None = None,
        explain: bool = False,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
        without: Iterable[str] = (),
    ) -> TopK:
        """Return the k best labels of each text.

        Args:
            texts: One text; or several as a list, tuple, array or column of a data frame.
            k: Labels per text: 10 by default; with a threshold the maximum, 20 by default.
            head: ``dual``, ``classifier``, ``combined``, or ``ensemble`` where it was fitted; by
                default the last of these that the model has.
            threshold: Leave out labels with a smaller probability: a number, ``"auto"`` (best
                micro-F1 on validation) or ``"groups"`` (the same for rare and frequent labels
                apart). Only for the ensemble.
            explain: Also return what each scorer contributes (``TopK.explanations``). Only for
                the ensemble.
            exclude: (M, 2) pairs (text position, label row) that must not be returned.
            allowed: (labels of now,) False for labels that must not be returned.
            without: Scorers that the ensemble leaves out.

        Returns:
            Rows, scores, ids and texts of the labels. Scores of the ensemble are probabilities.

        Raises:
            ConfigError: If the model has no such head, or the head does not support an option.
            DataError: If something else than texts was given.
        """
        batch = as_texts(texts)
        self.check_threshold(threshold, head)
        if k is None:
            k = DEFAULT_K if threshold is None else DEFAULT_K_ABOVE
        name = self.require_head(head)
        return self.rank(
            self._queries(batch, name),
            self.snapshot(),
            k,
            head=head,
            threshold=threshold,
            explain=explain,
            exclude=exclude,
            allowed=allowed,
            without=without,
        )

    def rank(
        self,
        queries: Queries | QueryStream,
        snapshot: Snapshot,
        k: int,
        *,
        head: str | None = None,
        threshold: float | str | None = None,
        explain: bool = False,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
        without: Iterable[str] = (),
    ) -> TopK:
        """Rank the labels of one snapshot for encoded texts; see ``predict``."""
        name, left_out = self.require_head(head), tuple(without)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ConfigError(f"k is {k!r}; give a whole number from 1 on")
        if name == ENSEMBLE:
            assert self._ranker is not None
            top = self._ranker.rank(
                queries, snapshot, int(k), exclude=exclude, allowed=allowed, without=left_out,
                explain=explain,
            )  # fmt: skip
            if threshold is not None:
                top = keep_above(top, self.thresholds(threshold, snapshot, left_out))
            return replace(top, queries=queries.texts)
        require_ensemble(name, threshold, explain, left_out)
        assert isinstance(queries, Queries)  # streams are for the ensemble
        if not len(queries):
            empty = np.zeros((0, k))
            return TopK(empty.astype(np.int64), empty.astype(np.float32), snapshot.labels)
        mask = snapshot.allowed_with(allowed)
        top = self.label_vectors.search(
            name, queries.vectors, k, snapshot.added_vectors, exclude=exclude, allowed=mask
        )
        return TopK(top.rows, top.scores, snapshot.labels, queries=queries.texts)

    @property
    def reranking(self) -> Reranking | None:
        """What is known of the re-ranking stage; None where the run has none."""
        return None if self.ensemble is None else self.ensemble.variants[0].reranking

    def limit_reranking(self, budget_ms: float) -> int:
        """Re-rank no more candidates than a budget allows, by a cost measured here and now.

        Args:
            budget_ms: Milliseconds for re-ranking one text, answered alone.

        Returns:
            Candidates of a text that are re-ranked from now on; 0 for none.

        Raises:
            ConfigError: If the run has no re-ranking stage.
        """
        if self._ranker is None or self._ranker.reranker is None:
            raise ConfigError(
                "a budget in milliseconds needs a re-ranking stage; fit one with: umpteen rerank"
            )
        texts = [] if self.folder is None else RunFolder(self.folder).example_texts(TIMED_TEXTS)
        texts = texts or list(self.labels.titles[:TIMED_TEXTS])
        queries = Queries(texts, self.vectors(texts))
        return self._ranker.limit_reranking(queries, self.snapshot(), budget_ms)

    def vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode texts: (N, heads * dim) search vectors on the model's device."""
        return self.encoder.vectors(texts)

    def require_head(self, head: str | None) -> str:
        """Return the head, the default one for None.

        Raises:
            ConfigError: If the model has no such head.
        """
        if head is None:
            return self.heads[-1]
        if head not in self.heads:
            raise ConfigError(f"the model has no head {head!r}; it has: {', '.join(self.heads)}")
        return head

    def thresholds(
        self, threshold: float | str, snapshot: Snapshot, without: Iterable[str] = ()
    ) -> NDArray[np.float64]:
        """Return (labels,) the probability from which on each label is returned.

        Raises:
            ConfigError: If it is no probability, ``auto`` or ``groups``.
        """
        require_threshold(threshold)
        limits = np.empty(snapshot.n_labels)
        if not isinstance(threshold, str):
            limits[:] = threshold
            return limits
        assert self.ensemble is not None
        calibration = self.ensemble.variant(without).calibration
        limits[:] = calibration.threshold
        if threshold == "groups":
            n = snapshot.n_trained
            limits[:n] = thresholds_of_labels(calibration, self._source.trained.label_counts)
        return limits

    def check_threshold(self, threshold: float | str | None, head: str | None = None) -> None:
        """Check a threshold before texts are encoded.

        Raises:
            ConfigError: If the model has no such head, the scores of the head are no
                probabilities, or the threshold is none.
        """
        name = self.require_head(head)
        if name != ENSEMBLE:
            require_ensemble(name, threshold, explain=False, without=())
        elif threshold is not None:
            require_threshold(threshold)

    def _queries(self, texts: list[str], head: str) -> Queries | QueryStream:
        if not texts:
            width = self.label_vectors.width
            return Queries(texts, torch.empty(0, width, device=self.encoder.device))
        if head == ENSEMBLE and self._ranker is not None:
            return self._ranker.queries(texts, self.encoder)
        return Queries(texts, self.vectors(texts))

    def _snapshots(self, stored: StoredEnsemble | None) -> SnapshotSource:
        """Make the snapshot without changes, and what keeps it up to date."""
        counts = self.label_counts if stored is None else stored.label_counts
        normalize = not self.model.normalize
        snapshot = initial_snapshot(
            self.labels, counts, self.label_vectors, stored, normalize=normalize
        )
        vectorizer = None if stored is None else stored.vectorizer
        cache = None if self.folder is None else VectorCache(self.folder)
        # Model and vocabulary: everything that encoded changes depend on.
        key = (
            self._model_key if vectorizer is None else f"{self._model_key} {vectorizer.fingerprint}"
        )
        encoded = EncodedChanges(
            self.encoder, self.label_vectors, vectorizer, cache=cache, model=key
        )
        # Vectors that were scaled for the search are encoded again.
        encode = None if self.model.normalize else self.encoder.vectors
        place = None if cache is None else (cache.folder, key)
        fit = None if self._ranker is None else fit_with(self._ranker, encode, place)
        return SnapshotSource(snapshot, encoded, store=self.store, fit=fit)
