"""Which models a run keeps: validation after epochs, its history, and when to stop early."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks
from umpteen.config.schema import ValidationConfig
from umpteen.data.dataset import Dataset
from umpteen.data.tokens import TokenStore, prepare
from umpteen.evaluation import evaluate
from umpteen.files import write_json
from umpteen.metrics import parse_all
from umpteen.model.model import Model
from umpteen.model.storage import TextConfig, save_model
from umpteen.model.vectors import encode_texts, label_search_vectors, query_search_vectors
from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder
from umpteen.training.encode_on_ranks import encoded_on_ranks
from umpteen.training.loop import Position
from umpteen.training.prepare import Prepared

MAX_PAIRS = 1 << 28
"""Texts times labels that a validation on a CPU compares at most: some 5 seconds on two cores."""
MIN_VALIDATED = 200
VALIDATION_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@100")


@dataclass(frozen=True)
class Encoded:
    """Vectors that a validation needs."""

    labels: Tensor | None
    """(L, dim) of the dual head; None without one, and on one rank, where a copy is avoided."""
    queries: Tensor | None
    """(N, heads * dim) of the validation texts; None without any."""


@dataclass(frozen=True)
class Selection:
    """Validates, and writes the best model by validation and the last one.

    Everything is decided by the position's history, so a resumed run decides the same.
    """

    folder: RunFolder
    model: Model
    data: Prepared
    text_config: TextConfig
    rules: ValidationConfig
    n_epochs: int
    """Of all stages."""
    precision: str
    first_epochs: tuple[int, ...] = (0,)
    """Where each stage starts."""

    def encode(self, ranks: Ranks) -> Encoded:
        """Encode labels and validation texts on all ranks, for ``epoch_done`` on the first."""
        self.model.eval()  # the loop goes back to training by itself
        labels = queries = None
        if self.model.dual_head is not None and ranks.world > 1:
            head, precision = self.model.dual, self.precision
            encode = partial(encode_texts, self.model, head=head, precision=precision)
            labels = encoded_on_ranks(encode, self.data.labels, ranks)
        if self.data.validation is not None:
            encode = partial(query_search_vectors, self.model)
            queries = encoded_on_ranks(encode, self._validated[1], ranks)
        return Encoded(labels, queries)

    def epoch_done(self, at: Position, encoded: Encoded) -> tuple[dict[str, Any], bool] | None:
        """Validate if it is due, note the result in the history, and keep the models it calls for.

        Args:
            at: Where the run stands; its history grows.
            encoded: What ``encode`` returned.

        Returns:
            Metrics by head and whether they are the best so far; None if none were due.
        """
        if not self.due(at):
            return None
        last = at.epoch == self.n_epochs
        if self.data.validation is None:
            place = self._save(self._predictor(encoded), at)
            self.folder.point(best=place, last=place)
            return None
        predictor = self._predictor(encoded)
        heads, value = self._validate(predictor, encoded)
        best = not at.history or value > max(entry["value"] for entry in at.history)
        at.history.append({"epoch": at.epoch, "step": at.step, "value": value, "heads": heads})
        if best or last or self.patience_over(at):
            place = self._save(predictor, at)
            self.folder.point(**({"best": place} if best else {}), last=place)
        write_json(self.folder.metrics, {"select": self.rules.select, "validation": at.history})
        return heads, best

    def due(self, at: Position) -> bool:
        """Return whether the epoch just done is to be validated, or its model kept."""
        validated = self.data.validation is not None and not at.epoch % self.rules.every_epochs
        return validated or at.epoch == self.n_epochs

    def patience_over(self, at: Position) -> bool:
        """Return whether the last validations of this stage brought nothing better."""
        start = self.first_epochs[at.stage]
        history = [entry for entry in at.history if entry["epoch"] > start]
        if not self.rules.patience or not history:
            return False
        best = max(range(len(history)), key=lambda place: history[place]["value"])
        return len(history) - 1 - best >= self.rules.patience

    def _validate(self, predictor: Predictor, encoded: Encoded) -> tuple[dict[str, Any], float]:
        select = str(parse_all([self.rules.select])[0])
        metrics = tuple(dict.fromkeys([*VALIDATION_METRICS, select]))
        found = evaluate(
            predictor,
            self._validated[0],
            split="validation",
            metrics=metrics,
            vectors=encoded.queries,
        )
        heads = {head: dict(report.values) for head, report in found.heads.items()}
        return heads, heads[predictor.heads[-1]][select]

    def _predictor(self, encoded: Encoded) -> Predictor:
        vectors = label_search_vectors(
            self.model, self.data.labels, precision=self.precision, dual=encoded.labels
        )
        labels, counts = self.data.dataset.labels, self.data.dataset.label_counts
        return Predictor(
            self.model, self._tokenizer, self.text_config, labels, vectors, counts,
            low_memory=True,
        )  # fmt: skip

    @cached_property
    def _validated(self) -> tuple[Dataset, TokenStore]:
        """Return the data with the validation texts that are used, and their tokens."""
        dataset, tokens = self.data.dataset, self.data.validation
        assert tokens is not None
        rows = validated_rows(len(tokens), self.model.n_labels, self.model.log_scales.device)
        if len(rows) == len(tokens):
            return dataset, tokens
        splits = {**dataset.splits, "validation": dataset["validation"].select(rows)}
        some = tokens.take(rows)
        return replace(dataset, splits=splits), TokenStore(some.ids, some.offsets)

    @cached_property
    def _tokenizer(self) -> Any:
        return prepare(self.data.tokenizer, self.text_config.max_tokens)  # once: a copy takes 0.1 s

    def _save(self, predictor: Predictor, at: Position) -> Path:
        place = self.folder.models / f"epoch-{at.epoch:04d}"
        vectors = predictor.label_vectors.numpy()
        save_model(place, self.model, self.data.tokenizer, self.text_config, vectors=vectors)
        return place


def validated_rows(n_texts: int, n_labels: int, device: torch.device) -> NDArray[np.int64]:
    """Return the validation texts that an epoch is judged by, evenly spaced.

    All of them on a GPU; on a CPU as many as ``MAX_PAIRS`` allows, and at least ``MIN_VALIDATED``.

    Example:
        >>> len(validated_rows(2000, 300_000, torch.device("cpu")))
        894
    """
    n = n_texts if device.type == "cuda" else max(MIN_VALIDATED, MAX_PAIRS // max(1, n_labels))
    return np.unique(np.linspace(0, n_texts - 1, min(n, n_texts)).astype(np.int64))
