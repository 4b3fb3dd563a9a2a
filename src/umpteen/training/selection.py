"""Which models a run keeps: validation after epochs, its history, and when to stop early."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks, Shards
from umpteen.config.schema import ValidationConfig
from umpteen.data.dataset import Dataset
from umpteen.data.tokens import TokenStore, prepare
from umpteen.evaluation import evaluate
from umpteen.files import write_json
from umpteen.metrics import parse_all
from umpteen.model.model import Model
from umpteen.model.storage import TextConfig, save_model
from umpteen.model.vectors import (
    available_heads,
    head_columns,
    label_search_vectors,
    query_search_vectors,
)
from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder
from umpteen.training.data_parallel import whole_table
from umpteen.training.encode_on_ranks import TokenPart, encoded_on_ranks
from umpteen.training.loop import Position
from umpteen.training.prepare import Prepared
from umpteen.training.sharded_search import ShardedLabelVectors

MAX_PAIRS = 1 << 28
"""Texts times labels that a validation on a CPU compares at most: some 5 seconds on two cores."""
MIN_VALIDATED = 200
VALIDATION_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@100")


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

    def epoch_done(self, at: Position, ranks: Ranks) -> tuple[dict[str, Any], bool] | None:
        """Validate if it is due, note the result in the history, and keep the models it calls for.

        All ranks must call it. Each encodes its share of the texts and searches its own labels; the
        first rank writes.

        Args:
            at: Where the run stands; its history grows.
            ranks: Who takes part.

        Returns:
            Metrics by head and whether they are the best so far; None if none were due.
        """
        if not self.due(at):
            return None
        self.model.eval()  # the loop goes back to training by itself
        own, result, best = self._own_vectors(ranks), None, True
        if self.data.validation is not None:
            heads, value = self._validate(self._predictor(own, ranks), ranks)
            before = self.of_stage(at)
            best = not before or value > max(entry["value"] for entry in before)
            at.history.append({"epoch": at.epoch, "step": at.step, "value": value, "heads": heads})
            result = heads, best
        if best or at.epoch == self.n_epochs or self.patience_over(at):
            self._save(own, at, ranks, best=best)
        if ranks.first and result is not None:
            write_json(self.folder.metrics, {"select": self.rules.select, "validation": at.history})
        return result

    def due(self, at: Position) -> bool:
        """Return whether the epoch just done is to be validated, or its model kept."""
        validated = self.data.validation is not None and not at.epoch % self.rules.every_epochs
        return validated or at.epoch == self.n_epochs

    def patience_over(self, at: Position) -> bool:
        """Return whether the last validations of this stage brought nothing better."""
        history = self.of_stage(at)
        if not self.rules.patience or not history:
            return False
        best = max(range(len(history)), key=lambda place: history[place]["value"])
        return len(history) - 1 - best >= self.rules.patience

    def of_stage(self, at: Position) -> list[dict[str, Any]]:
        """Return the validations of the stage under way.

        A model of the first stage is never the best one of two stages: a head that the second
        stage trains would have no say in it.
        """
        start = self.first_epochs[at.stage]
        return [entry for entry in at.history if entry["epoch"] > start]

    def summary(self, at: Position) -> list[str]:
        """Return which model is the best, and whether the first stage had a better validation."""
        own = self.of_stage(at)
        if not own:
            return []
        best, first = (max(part, key=lambda entry: entry["value"]) for part in (own, at.history))
        lines = [f"Best model: epoch {best['epoch']}"]
        if first["value"] > best["value"]:
            lines.append(
                f"The second stage lowers {self.rules.select} on validation from "
                f"{first['value']:.2f} (epoch {first['epoch']}) to {best['value']:.2f}; "
                "change the settings of stage2"
            )
        return lines

    def _validate(self, predictor: Predictor, ranks: Ranks) -> tuple[dict[str, Any], float]:
        select = str(parse_all([self.rules.select])[0])
        metrics = tuple(dict.fromkeys([*VALIDATION_METRICS, select]))
        data, tokens = self._validated
        encode = partial(query_search_vectors, self.model)
        vectors = encoded_on_ranks(encode, tokens, ranks)
        found = evaluate(predictor, data, split="validation", metrics=metrics, vectors=vectors)
        heads = {head: dict(report.values) for head, report in found.heads.items()}
        # Machines may round differently, and all ranks must decide the same.
        heads = ranks.json_from_first(heads)
        return heads, heads[predictor.heads[-1]][select]

    def _own_vectors(self, ranks: Ranks) -> Tensor:
        """Return the search vectors of this rank's labels, (l, heads * dim)."""
        own, tokens = ranks.shard(self.model.n_labels), self.data.labels
        if not len(own):
            table = self.model.log_scales
            return table.new_empty(0, len(self.model.heads) * self.model.dim, dtype=torch.float32)
        part = tokens if not ranks.exchanges else TokenPart(tokens, own.start, own.stop)
        return label_search_vectors(self.model, part, precision=self.precision)

    def _predictor(self, own: Tensor, ranks: Ranks) -> Predictor:
        labels, counts = self.data.dataset.labels, self.data.dataset.label_counts
        vectors: Any = own
        if ranks.exchanges:
            columns = {head: head_columns(self.model, head) for head in available_heads(self.model)}
            shards = Shards(ranks, ranks.bounds(self.model.n_labels))
            vectors = ShardedLabelVectors(own, columns, self.model.log_scales.device, shards)
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

    def _save(self, own: Tensor, at: Position, ranks: Ranks, *, best: bool) -> None:
        """Write the model, whole, on the first rank."""
        place = self.folder.models / f"epoch-{at.epoch:04d}"
        vectors = ranks.rows_to_first(own, ranks.bounds(self.model.n_labels))
        with whole_table(self.model, ranks, on_host=True):
            if vectors is not None:
                parts = self.model, self.data.tokenizer, self.text_config
                save_model(place, *parts, vectors=vectors.numpy())
                self.folder.point(**({"best": place} if best else {}), last=place)


def validated_rows(n_texts: int, n_labels: int, device: torch.device) -> NDArray[np.int64]:
    """Return the validation texts that an epoch is judged by, evenly spaced.

    All of them on a GPU; on a CPU as many as ``MAX_PAIRS`` allows, and at least ``MIN_VALIDATED``.

    Example:
        >>> len(validated_rows(2000, 300_000, torch.device("cpu")))
        894
    """
    n = n_texts if device.type == "cuda" else max(MIN_VALIDATED, MAX_PAIRS // max(1, n_labels))
    return np.unique(np.linspace(0, n_texts - 1, min(n, n_texts)).astype(np.int64))
