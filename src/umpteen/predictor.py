"""From text to labels: encode, take a snapshot, rank. Needs nothing of training."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.compute.precision import choose_device
from umpteen.data.dataset import Propensity
from umpteen.data.labels import LabelSet
from umpteen.data.tokens import prepare
from umpteen.errors import ConfigError, DataError, RunError
from umpteen.files import atomic_folder
from umpteen.head_names import ENSEMBLE
from umpteen.label_indexes import load_label_indexes
from umpteen.model.model import Model, place_model
from umpteen.model.storage import TextConfig, load_model, load_vectors
from umpteen.model.text_encoder import TextEncoder
from umpteen.model.vectors import available_heads, head_columns
from umpteen.ranking.encoded_changes import EncodedChanges
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.explanations import Explanations
from umpteen.ranking.initial_snapshot import initial_snapshot
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.queries import Queries
from umpteen.ranking.ranker import EnsembleRanker
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.snapshot_source import SnapshotSource
from umpteen.ranking.storage import StoredEnsemble, load_ensemble
from umpteen.ranking.thresholds import thresholds_of_labels
from umpteen.runs import UNTRAINED, RunFolder
from umpteen.store import ChangeStore, NewLabel
from umpteen.store.vector_cache import VectorCache
from umpteen.types import TopK


class Predictor:
    """A trained model with its labels.

    Load one with ``Predictor.load("run")``; ``umpteen.train`` returns one too. Threads may share
    it: every call reads labels and examples once, as one snapshot.

    Args:
        model: In evaluation mode, on its device.
        tokenizer: The model's tokenizer.
        text_config: What is read of a text.
        labels: The labels it was trained with.
        vectors: (L, heads * dim) search vectors of the labels, NumPy or torch.
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
        self.encoder = TextEncoder(model, tokenizer, text_config)
        columns = {head: head_columns(model, head) for head in available_heads(model)}
        device = self.encoder.device
        self.label_vectors = LabelVectors(vectors, columns, device, low_memory=low_memory)
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
    ) -> Self:
        """Read a run folder.

        Args:
            run: The folder.
            device: ``auto``, ``cpu`` or ``cuda``.
            which: The ``best`` model by validation, or the ``last``.
            with_indexes: Use what ``umpteen index`` built (for the best model); without it every
                search over labels is exact.
            with_ensemble: Use the ensemble (of the best model) where it was fitted.
            tolerant: Predict from what can be read of a damaged store instead of raising.

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
        model = place_model(model, choose_device(device), labels_on_host=True)
        vectors = load_vectors(model_folder, model)
        predictor = cls(model, tokenizer, text_config, labels, vectors, counts, folder.propensity())
        predictor.folder, predictor.n_train = folder.path, folder.n_train()
        written = (model_folder / "model.json").stat().st_mtime_ns
        predictor._model_key = f"{model_folder.name} {written} {text_config.label_fingerprint}"
        predictor.store = ChangeStore.open(folder.path, labels, tolerant=tolerant)
        best = model_folder == folder.model("best")
        if with_indexes and best:
            load_label_indexes(folder, model_folder.name, predictor.label_vectors)
        stored = None
        if with_ensemble and best:
            again = f"umpteen fit-ensemble {folder.path} DATA"
            stored = load_ensemble(
                folder.ensemble, predictor.label_vectors, model=model_folder.name, again=again
            )
        predictor.use_ensemble(stored)
        return predictor

    def use_ensemble(self, stored: StoredEnsemble | None) -> None:
        """Predict with an ensemble from now on, or with the model's own heads alone."""
        self.ensemble = None if stored is None else stored.model
        self._ranker = None if stored is None else EnsembleRanker(stored.model, stored.retrievers)
        self._source = self._snapshots(stored)

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads, the default one last."""
        return self.vector_heads if self._ranker is None else (*self.vector_heads, ENSEMBLE)

    @property
    def vector_heads(self) -> tuple[str, ...]:
        """The heads that search label vectors: all but the ensemble."""
        return self.label_vectors.heads

    def snapshot(self) -> Snapshot:
        """Return labels and examples as they are now."""
        return self._source.current()

    def as_trained(self) -> Self:
        """Return the predictor without changes since training: what metrics are about."""
        trained = copy.copy(self)
        trained.store = None
        trained._source = self._source.without_changes()
        return trained

    def predict(
        self,
        texts: Sequence[str] | str,
        k: int = 10,
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
            texts: One text or several.
            k: Labels per text.
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
        self.require_head(head)
        queries = Queries(batch, self.vectors(batch) if batch else self._no_vectors())
        return self.rank(
            queries,
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
        queries: Queries,
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
        if k < 1:
            raise ConfigError(f"k is {k}; request at least 1 label")
        if name == ENSEMBLE:
            assert self._ranker is not None
            top = self._ranker.rank(
                queries, snapshot, k, exclude=exclude, allowed=allowed, without=left_out,
                explain=explain,
            )  # fmt: skip
            return self._above(top, threshold, left_out, snapshot)
        self._require_ensemble(name, threshold, explain, left_out)
        if not len(queries):
            empty = np.zeros((0, k))
            return TopK(empty.astype(np.int64), empty.astype(np.float32), snapshot.labels)
        mask = snapshot.allowed_with(allowed)
        top = self.label_vectors.search(
            name, queries.vectors, k, snapshot.added_vectors, exclude=exclude, allowed=mask
        )
        return TopK(top.rows, top.scores, snapshot.labels)

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

    def add_labels(self, labels: Mapping[str, str] | Sequence[NewLabel]) -> int:
        """Add labels; they can be predicted immediately, without retraining.

        Args:
            labels: Id to text, or labels.

        Returns:
            How many were new.

        Raises:
            DataError: If a label cannot be added; nothing is added then.
        """
        if isinstance(labels, Mapping):
            labels = [NewLabel(label_id, text) for label_id, text in labels.items()]
        return self.require_store().add_labels(labels)

    def retire_labels(self, ids: Sequence[str]) -> int:
        """Stop predicting labels; return how many were not retired yet."""
        return self.require_store().retire_labels(ids)

    def restore_labels(self, ids: Sequence[str]) -> int:
        """Undo ``retire_labels``; return how many were retired."""
        return self.require_store().restore_labels(ids)

    def add_examples(self, texts: Sequence[str] | str, labels: Sequence[Sequence[str]]) -> int:
        """Store labelled texts; similar texts get these labels from the next prediction on.

        Args:
            texts: The texts.
            labels: Label ids of each.

        Returns:
            How many were stored.

        Raises:
            DataError: If a text or label cannot be stored; nothing is stored then.
        """
        return self.require_store().add_examples(as_texts(texts), labels)

    def require_store(self) -> ChangeStore:
        """Return the run's store of changes.

        Raises:
            RunError: If this predictor was not loaded from a run folder.
        """
        if self.store is None:
            raise RunError("only a model that was loaded from a run folder can be changed")
        return self.store

    def save(self, path: str | Path) -> None:
        """Copy the run folder.

        Args:
            path: A folder that does not exist yet.

        Raises:
            RunError: If this predictor was not loaded from a run folder, or the path exists.
        """
        if self.folder is None:
            raise RunError("only a model that was loaded from a run folder can be saved")
        if Path(path).exists():
            raise RunError(f"{path} exists; name a folder that does not")
        with atomic_folder(Path(path)) as temporary:
            shutil.copytree(self.folder, temporary, dirs_exist_ok=True)

    def thresholds(
        self, threshold: float | str, snapshot: Snapshot, without: Iterable[str] = ()
    ) -> NDArray[np.float64]:
        """Return (labels,) the probability from which on each label is returned.

        Raises:
            ConfigError: If it is no probability, ``auto`` or ``groups``.
        """
        _check_threshold(threshold)
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
            self._require_ensemble(name, threshold, explain=False, without=())
        elif threshold is not None:
            _check_threshold(threshold)

    def _above(
        self, top: TopK, threshold: float | str | None, without: tuple[str, ...], snapshot: Snapshot
    ) -> TopK:
        if threshold is None:
            return top
        limits = np.append(self.thresholds(threshold, snapshot, without), np.inf)
        kept = top.scores >= limits[top.rows].astype(np.float32)
        # Per-label limits can drop a label in the middle: what is kept moves to the front.
        order = np.argsort(~kept, axis=1, kind="stable")
        rows = np.take_along_axis(np.where(kept, top.rows, -1), order, 1)
        scores = np.take_along_axis(np.where(kept, top.scores, np.float32(-np.inf)), order, 1)
        explanations = top.explanations
        if isinstance(explanations, Explanations):
            explanations = explanations.reordered(order, kept.sum(axis=1))
        return TopK(rows, scores, top.labels, top.notes, explanations)

    def _require_ensemble(
        self, head: str, threshold: float | str | None, explain: bool, without: tuple[str, ...]
    ) -> None:
        asked = [
            ("a threshold", threshold is not None),
            ("an explanation", explain),
            (f"leaving out {', '.join(without)}", bool(without)),
        ]
        for what, wanted in asked:
            if wanted:
                raise ConfigError(
                    f"{what} needs the head {ENSEMBLE!r}, whose scores are probabilities; "
                    f"the head is {head!r}"
                )

    def _no_vectors(self) -> torch.Tensor:
        return torch.empty(0, self.label_vectors.width, device=self.encoder.device)

    def _snapshots(self, stored: StoredEnsemble | None) -> SnapshotSource:
        """Make the snapshot without changes, and what keeps it up to date."""
        counts = self.label_counts if stored is None else stored.label_counts
        normalize = not self.model.normalize
        snapshot = initial_snapshot(
            self.labels, counts, self.label_vectors, stored, normalize=normalize
        )
        vectorizer = None if stored is None else stored.vectorizer
        cache = None if self.folder is None else VectorCache(self.folder)
        encoded = EncodedChanges(
            self.encoder, self.label_vectors, vectorizer, cache=cache, model=self._cache_key(stored)
        )
        return SnapshotSource(snapshot, encoded, store=self.store)

    def _cache_key(self, stored: StoredEnsemble | None) -> str:
        """Identify model and vocabulary: everything that encoded changes depend on."""
        if stored is None or stored.vectorizer is None:
            return self._model_key
        return f"{self._model_key} {stored.vectorizer.fingerprint}"


def _check_threshold(threshold: float | str) -> None:
    if isinstance(threshold, str):
        if threshold not in ("auto", "groups"):
            raise ConfigError(f"threshold {threshold!r}: give a number from 0 to 1, auto or groups")
    elif not 0 <= threshold <= 1:
        raise ConfigError(f"threshold {threshold:g} is no probability; give 0 to 1")


def as_texts(texts: Sequence[str] | str) -> list[str]:
    """Return one text or several as a list.

    Raises:
        DataError: If something else than texts was given.
    """
    if isinstance(texts, str):
        return [texts]
    if hasattr(texts, "columns") or isinstance(texts, Mapping):
        raise DataError("texts is a table; give one column of it, such as table['text']")
    batch = list(texts)
    for place, text in enumerate(batch):
        if not isinstance(text, str):
            raise DataError(
                f"texts[{place}] is {type(text).__name__}, not text; give a string or a list of "
                "strings"
            )
    return batch
