"""Which models a run keeps: validation after epochs, its history, and when to stop early."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from umpteen.config.schema import ValidationConfig
from umpteen.data.tokens import prepare
from umpteen.evaluation import evaluate
from umpteen.files import write_json
from umpteen.metrics import parse_all
from umpteen.model.model import Model
from umpteen.model.storage import TextConfig, save_model
from umpteen.model.vectors import label_search_vectors
from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder
from umpteen.training.loop import Position
from umpteen.training.prepare import Prepared

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

    def epoch_done(self, at: Position) -> tuple[dict[str, Any], bool] | None:
        """Validate if it is due, note the result in the history, and keep the models it calls for.

        Args:
            at: Where the run stands; its history grows.

        Returns:
            Metrics by head and whether they are the best so far; None if none were due.
        """
        if not self.due(at):
            return None
        last = at.epoch == self.n_epochs
        if self.data.validation is None:
            place = self._save(self._predictor(), at)
            self.folder.point(best=place, last=place)
            return None
        predictor = self._predictor()
        heads, value = self._validate(predictor)
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

    def _validate(self, predictor: Predictor) -> tuple[dict[str, Any], float]:
        select = str(parse_all([self.rules.select])[0])
        metrics = tuple(dict.fromkeys([*VALIDATION_METRICS, select]))
        found = evaluate(
            predictor,
            self.data.dataset,
            split="validation",
            metrics=metrics,
            tokens=self.data.validation,
        )
        heads = {head: dict(report.values) for head, report in found.heads.items()}
        return heads, heads[predictor.heads[-1]][select]

    def _predictor(self) -> Predictor:
        self.model.eval()  # the loop goes back to training by itself
        vectors = label_search_vectors(self.model, self.data.labels, precision=self.precision)
        labels, counts = self.data.dataset.labels, self.data.dataset.label_counts
        return Predictor(
            self.model, self._tokenizer, self.text_config, labels, vectors, counts,
            low_memory=True,
        )  # fmt: skip

    @cached_property
    def _tokenizer(self) -> Any:
        return prepare(self.data.tokenizer, self.text_config.max_tokens)  # once: a copy takes 0.1 s

    def _save(self, predictor: Predictor, at: Position) -> Path:
        place = self.folder.models / f"epoch-{at.epoch:04d}"
        vectors = predictor.label_vectors.numpy()
        save_model(place, self.model, self.data.tokenizer, self.text_config, vectors=vectors)
        return place
