"""Changes of a loaded run without training: labels, examples, and the copy on the hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from umpteen import hub
from umpteen.errors import RunError
from umpteen.store import ChangeStore, NewLabel
from umpteen.text_input import as_texts


class ChangeableRun:
    """A model that was loaded from a run folder, and what may be changed in that folder."""

    folder: Path | None
    store: ChangeStore | None

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

    def add_examples(
        self, texts: Iterable[str] | str, labels: Sequence[Sequence[str]] | Sequence[str]
    ) -> int:
        """Store labelled texts; similar texts get these labels from the next prediction on.

        Args:
            texts: The texts, or one text.
            labels: Label ids of each text; for one text its label ids.

        Returns:
            How many were stored.

        Raises:
            DataError: If a text or label cannot be stored; nothing is stored then.
        """
        of_one = isinstance(texts, str) and all(isinstance(label, str) for label in labels)
        given: Any = [labels] if of_one and not isinstance(labels, str) else list(labels)
        return self.require_store().add_examples(as_texts(texts), given)

    def require_store(self) -> ChangeStore:
        """Return the run's store of changes.

        Raises:
            RunError: If this predictor was not loaded from a run folder.
        """
        if self.store is None:
            raise RunError("only a model that was loaded from a run folder can be changed")
        return self.store

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Push the run folder to the Hugging Face hub, with a model card.

        Args:
            repository: ``organization/name``.
            **options: Of huggingface_hub's ``push_to_hub``, such as ``private``.

        Returns:
            The address of the commit.

        Raises:
            RunError: If this predictor was not loaded from a run folder.
            ConfigError: If the hub refuses it or cannot be reached.
        """
        if self.folder is None:
            raise RunError("only a model that was loaded from a run folder can be pushed")
        return hub.push(self.folder, repository, **options)
