"""From text to the top labels: tokenize, encode, search. Needs nothing of training."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.answers.fused import Fused
from umpteen.answers.remembered import Remembered
from umpteen.answers.store import load_answers
from umpteen.compute.precision import choose_device
from umpteen.data.dataset import Propensity
from umpteen.data.labels import LabelSet
from umpteen.data.tokens import TokenStore, encode, prepare
from umpteen.errors import ConfigError, LabelMismatch, RunError
from umpteen.files import read_json
from umpteen.head_names import ENSEMBLE
from umpteen.index import INDEXES
from umpteen.index.base import LabelIndex
from umpteen.index.exact import ExactIndex
from umpteen.live.book import LabelBook
from umpteen.live.overlay import LiveLabels
from umpteen.live.stand_in import with_stand_ins
from umpteen.model.model import Model, place_model
from umpteen.model.storage import Reading, load_model, load_vectors
from umpteen.model.vectors import (
    available_heads,
    head_columns,
    pair_scores,
    query_search_vectors,
)
from umpteen.registry import resolve
from umpteen.runs import UNTRAINED, RunFolder
from umpteen.types import TopK

MANY_LABELS = 50_000


class Predictor:
    """A trained model with its labels, ready to answer.

    Make one with ``Predictor.load("run")``; ``umpteen.train`` returns one too.

    Args:
        model: In evaluation mode, on its device.
        tokenizer: The model's tokenizer.
        reading: How texts are read.
        labels: The label set it was trained with.
        vectors: (L, heads * dim) search vectors of the labels, NumPy or torch.
        label_counts: (L,) training queries of each label.
        propensity: Constants to evaluate with instead of the data's own.
        lean: Whether memory is dearer than time: a head's exact index goes when another head's is
            made, and torch vectors on another device than the model's visit it block by block.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Any,
        reading: Reading,
        labels: LabelSet,
        vectors: Any,
        label_counts: NDArray[np.int64],
        propensity: Propensity | None = None,
        *,
        lean: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = prepare(tokenizer, reading.max_tokens)  # once: a copy takes 0.1 s
        self.reading = reading
        self.labels = labels
        self.label_counts = label_counts
        self.propensity = propensity
        self.heads = available_heads(model)
        self.live: LiveLabels | None = None
        """The labels of now, where the predictor is of a run folder."""
        self.ensemble: Fused | None = None
        """All parts in one answer, where a run has fitted it; then it is the last head."""
        self._vectors = vectors
        self._indexes: dict[str, LabelIndex] = {}
        self._lean = lean

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
            with_indexes: Whether to use what ``umpteen index`` built (for the best model); without
                it every search is exact.
            with_ensemble: Whether to use the ensemble (of the best model) where it was fitted.
            tolerant: Whether to answer by what can be read of a damaged journal of label changes or
                of remembered texts, instead of raising.

        Returns:
            The predictor; it answers by the run's label changes, now and as they are made.

        Raises:
            RunError: If the folder is not a whole run.
            LabelMismatch: If its parts speak of different labels.
        """
        folder = RunFolder(run).require()
        model_folder = folder.model(which)
        if model_folder.name == UNTRAINED:
            raise RunError(f"{folder.path} holds no trained model yet; continue it with --resume")
        model, tokenizer, reading = load_model(model_folder, mapped=True)
        tokenizer = prepare(tokenizer, reading.max_tokens, owned=True)
        labels, counts = folder.read_labels(reading.label_fingerprint)
        place = choose_device(device)
        vectors = load_vectors(model_folder, model)
        told = folder.propensity()
        # Answers come from the search vectors: the table that was trained stays in its file.
        model = place_model(model, place, labels_on_host=True)
        predictor = cls(model, tokenizer, reading, labels, vectors, counts, told)
        if with_indexes and model_folder == folder.model("best"):
            predictor._use_indexes(folder, model_folder)
        book = LabelBook(folder.path, labels, tolerant=tolerant)
        width = model.dim * len(model.heads)
        predictor.live = LiveLabels(
            book, predictor.new_label_vectors, width=width, reads=reading.text
        )
        if with_ensemble and model_folder == folder.model("best"):
            ensemble = load_answers(folder, predictor, model_folder.name, tolerant=tolerant)
            predictor.use_ensemble(ensemble)
        return predictor

    def use_ensemble(self, ensemble: Fused | None) -> None:
        """Answer with the ensemble head from now on, or with the model's own heads alone."""
        self.ensemble = ensemble
        own = available_heads(self.model)
        self.heads = own if ensemble is None else (*own, ENSEMBLE)

    @property
    def vector_heads(self) -> tuple[str, ...]:
        """The heads that are a search over label vectors: all but the ensemble."""
        return available_heads(self.model)

    def as_trained(self) -> Self:
        """The same predictor without label changes: what metrics of the training are about."""
        trained = copy.copy(self)
        trained.live = None
        if self.ensemble is not None:
            trained.use_ensemble(self.ensemble.without_additions(trained))
        return trained

    def predict(
        self,
        texts: Sequence[str] | str,
        k: int = 10,
        *,
        head: str | None = None,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
        without: Iterable[str] = (),
    ) -> TopK:
        """The k best labels of each text.

        Args:
            texts: One text or several.
            k: Labels per text.
            head: ``dual`` (label texts), ``classifier`` (label vectors), ``combined``, or
                ``ensemble`` where it was fitted; by default the last of these that there is.
            exclude: (M, 2) pairs (text position, label row) that must not be returned.
            allowed: (labels of now,) False for labels that no text may get.
            without: Parts that the ensemble head leaves out: ``votes``, ``lexical``, ``dual``,
                ``classifier``.

        Returns:
            Rows, scores, ids and texts of the labels. Rows are positions in ``labels``, and behind
            its end in ``live.labels``.
        """
        batch = [texts] if isinstance(texts, str) else list(texts)
        self._known(head)
        if not batch:
            empty = np.zeros((0, k))
            return TopK(empty.astype(np.int64), empty.astype(np.float32), self.labels)
        vectors = self.vectors(batch)
        return self.search(
            vectors, k, head=head, texts=batch, exclude=exclude, allowed=allowed, without=without
        )

    def explain(
        self, texts: Sequence[str], top: TopK, *, without: Iterable[str] = ()
    ) -> list[list[dict[str, Any]]]:
        """What each part says of ensemble predictions: see ``answers/fused.py:Fused.explain``.

        Args:
            texts: The texts.
            top: What ``predict`` with the head ``ensemble`` returned for them.
            without: As given to ``predict``.

        Returns:
            One list a text, one entry an answer.

        Raises:
            ConfigError: If no ensemble was fitted.
        """
        batch = list(texts)
        return self._fitted_ensemble().explain(batch, self.vectors(batch), top, without=without)

    def remember(self, texts: Sequence[str], labels: Sequence[Sequence[str]]) -> int:
        """Add texts with their labels to the run's memory; they count from the next answer on.

        Args:
            texts: The texts.
            labels: Label ids of each.

        Returns:
            How many were added.

        Raises:
            ConfigError: If the run keeps no memory.
            DataError: If a text or label is not one; nothing is added.
        """
        return self.require_memory().add(texts, labels)

    def labels_now(self) -> LabelSet:
        """The labels of now, those added since training at the end."""
        return self.live.labels if self.live is not None else self.labels

    def require_memory(self) -> Remembered:
        """The run's memory.

        Raises:
            ConfigError: If it keeps none.
        """
        remembered = self._fitted_ensemble().views.remembered
        if remembered is None:
            raise ConfigError(
                "the run keeps no memory (examples.kept=none); fit it again with one: "
                "umpteen fit-ensemble RUN DATA --set examples.kept=auto"
            )
        return remembered

    def _fitted_ensemble(self) -> Fused:
        if self.ensemble is None:
            raise ConfigError(
                "the run has no ensemble; fit one with: umpteen fit-ensemble RUN DATA"
            )
        return self.ensemble

    def vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Search vectors (N, heads * dim) of texts."""
        ragged = encode(texts, self.tokenizer, max_tokens=self.reading.max_tokens)
        if len(ragged) == 1:
            # Nothing to sort by length or to cut in chunks, which would take longer than encoding.
            with torch.no_grad():
                return self.model.query_vectors(ragged).float()
        return self.encode_tokens(TokenStore(ragged.ids, ragged.offsets))

    def new_label_vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Search vectors (A, heads * dim) of labels that were never trained, from their texts."""
        own = self.vectors(texts)
        if "classifier" not in self.heads:
            return own
        near = "dual" if "dual" in self.heads else "classifier"
        keys, values = self.columns(near), self.columns("classifier")
        return with_stand_ins(own, self.index(near), self._vectors, keys=keys, values=values)

    def encode_tokens(self, tokens: TokenStore, *, precision: str = "fp32") -> torch.Tensor:
        """Search vectors (N, heads * dim) of tokenized texts."""
        return query_search_vectors(self.model, tokens, precision=precision)

    def search(
        self,
        vectors: torch.Tensor,
        k: int,
        *,
        head: str | None = None,
        texts: Sequence[str] | None = None,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
        without: Iterable[str] = (),
    ) -> TopK:
        """The k best labels for search vectors (see ``predict``).

        The ensemble head reads words, so it needs the texts too; without texts and head it is the
        best of the others that answers.
        """
        name = self._known(self.vector_heads[-1] if head is None and texts is None else head)
        left_out = tuple(without)
        if left_out and name != ENSEMBLE:
            raise ConfigError(
                f"{', '.join(left_out)} can only be left out of the head 'ensemble', not {name!r}"
            )
        if name == ENSEMBLE:
            if texts is None:
                raise ConfigError("the head 'ensemble' reads words: give the texts too")
            top = self._fitted_ensemble().search(
                texts, vectors, k, exclude=exclude, allowed=allowed, without=left_out
            )
            return TopK(top.rows, top.scores, self.labels_now())
        columns = self.columns(name)
        index, queries = self.index(name), vectors[:, columns]
        if self.live is not None:
            now = self.live.refresh()
            return now.search(index, columns, queries, k, exclude=exclude, allowed=allowed)
        top = index.search(queries, k, exclude=exclude, allowed=allowed)
        return TopK(top.rows, top.scores, self.labels)

    def columns(self, head: str | None) -> slice:
        """The columns of search vectors a head uses.

        Raises:
            ConfigError: If the model has no such head.
        """
        name = self._known(head)
        if name == ENSEMBLE:
            name = self.vector_heads[-1]
        return head_columns(self.model, name)

    def pair_scores(
        self,
        vectors: torch.Tensor,
        queries: NDArray[np.int64],
        rows: NDArray[np.int64],
        *,
        head: str,
    ) -> NDArray[np.float32]:
        """(C,) a head's score of each pair (query, label row), labels of now included."""
        columns = self.columns(head)
        added = None if self.live is None else self.live.refresh().vectors[:, columns].cpu().numpy()
        return pair_scores(
            vectors[:, columns].cpu().numpy(), self.label_vectors(head), added, queries, rows
        )

    def index(self, head: str | None = None) -> LabelIndex:
        """The index of trained labels a head searches; exact unless another was built for it."""
        name = self._known(head)
        if name == ENSEMBLE:
            name = self.vector_heads[-1]
        if name not in self._indexes:
            if self._lean:
                self._indexes.clear()
            vectors = self._vectors[:, self.columns(name)]
            device = next(self.model.parameters()).device
            if self._lean and isinstance(vectors, torch.Tensor) and vectors.device != device:
                self._indexes[name] = ExactIndex(vectors, device=device)
                return self._indexes[name]
            if not isinstance(vectors, torch.Tensor):
                vectors = torch.from_numpy(vectors)  # shared with its file, where it has one
            many = len(vectors) >= MANY_LABELS
            if many and device.type == "cpu":
                # As they lie in the file: not read, checked or copied before they are searched.
                self._indexes[name] = ExactIndex(vectors)
                return self._indexes[name]
            # Worth a copy in half the bytes where there are many labels; the answers are the same.
            first_pass = "bfloat16" if many else None
            self._indexes[name] = ExactIndex.build(vectors.to(device), first_pass=first_pass)
        return self._indexes[name]

    def label_vectors(self, head: str | None = None) -> NDArray[np.float32]:
        """The trained labels' search vectors (L, D) of a head."""
        vectors = self._vectors[:, self.columns(head)]
        return vectors.cpu().numpy() if isinstance(vectors, torch.Tensor) else np.asarray(vectors)

    def _known(self, head: str | None) -> str:
        if head is None:
            return self.heads[-1]
        if head not in self.heads:
            raise ConfigError(f"the model has no head {head!r}; it has: {', '.join(self.heads)}")
        return head

    def _use_indexes(self, folder: RunFolder, model_folder: Path) -> None:
        for head in self.vector_heads:
            place = folder.index / head
            if not place.is_dir():
                continue
            about = read_json(place / "about.json", error=RunError)
            again = f"build it again with: umpteen index {folder.path}"
            if not isinstance(about, dict) or not {"model", "kind"} <= set(about):
                raise RunError(f"{place / 'about.json'} is damaged; {again}")
            if about["model"] != model_folder.name:
                raise LabelMismatch(
                    f"{place} was built for the model {about['model']}, the run now answers with "
                    f"{model_folder.name}; {again}"
                )
            kind = resolve(INDEXES, about["kind"], kind="index")
            self._indexes[head] = kind.load(place / "index")
