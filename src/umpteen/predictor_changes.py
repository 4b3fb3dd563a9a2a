"""A loaded run folder: its changes without training, its copies, its pickle, the hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from umpteen import hub
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError, RunError
from umpteen.run_files import TemporaryRun, pack_run, run_digest, unpack_run
from umpteen.store import ChangeStore, NewLabel
from umpteen.store.backup import backup
from umpteen.text_input import as_texts


@dataclass(frozen=True)
class LoadOptions:
    """How a predictor was loaded; the arguments of ``Predictor.load``."""

    device: str = "auto"
    which: str = "best"
    with_indexes: bool = True
    with_ensemble: bool = True
    tolerant: bool = False


def state_of(predictor: Any) -> dict[str, Any]:
    """Return what makes a ``Predictor`` again, as plain values.

    Raises:
        RunError: If it was not loaded from a run folder, or the folder is gone.
    """
    if predictor.folder is None:
        raise RunError(
            "only a model that was loaded from a run folder can be pickled or copied; load it with "
            "umpteen.Predictor.load"
        )
    state: dict[str, Any] = {
        "options": vars(predictor.load_options),
        "with_changes": predictor.store is not None,
        "downloaded": predictor.downloaded,
    }
    if predictor.temporary is not None:
        which = predictor.load_options.which
        return state | {"files": pack_run(predictor.folder, predictor.labels, which=which)}
    folder = predictor.folder.absolute()
    return state | {"folder": str(folder), "digest": run_digest(folder)}


def restore(kind: Any, state: Mapping[str, Any]) -> Any:
    """Make a predictor from its state.

    Raises:
        RunError: If the run folder is gone, or holds another run now.
    """
    temporary = unpack_run(state["files"]) if "files" in state else None
    folder = Path(state["folder"]) if temporary is None else temporary.path
    if temporary is None:
        if not folder.is_dir():
            raise RunError(
                f"the run folder {folder} does not exist here; a pickled model holds the path of "
                "its run folder, so copy the folder to this path or load it with "
                "umpteen.Predictor.load"
            )
        if run_digest(folder) != state["digest"]:
            raise RunError(
                f"{folder} holds another run than when the model was pickled; load it with "
                "umpteen.Predictor.load"
            )
    predictor = kind.load(folder, **state["options"])
    predictor.temporary, predictor.downloaded = temporary, state.get("downloaded", False)
    return predictor if state["with_changes"] else predictor.as_trained()


class ChangeableRun:
    """A model that was loaded from a run folder, and what may be changed in that folder."""

    load: ClassVar[Any]
    labels: LabelSet
    folder: Path | None
    temporary: TemporaryRun | None
    load_options: LoadOptions
    store: ChangeStore | None
    downloaded: bool = False
    """Whether the run folder is in the cache of the hub."""

    def __copy__(self) -> Self:
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (type(self), state_of(self))

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
        if isinstance(labels, str) or not all(isinstance(label, NewLabel) for label in labels):
            raise DataError("labels to add have an id and a text; pass a dict: {'id': 'text'}")
        return self.require_store().add_labels(labels)

    def retire_labels(self, ids: Sequence[str] | str) -> int:
        """Stop predicting labels, or one label; return how many were not retired yet."""
        return self.require_store().retire_labels([ids] if isinstance(ids, str) else ids)

    def restore_labels(self, ids: Sequence[str] | str) -> int:
        """Undo ``retire_labels``; return how many were retired."""
        return self.require_store().restore_labels([ids] if isinstance(ids, str) else ids)

    def add_examples(
        self, texts: Iterable[str] | str, labels: Sequence[Sequence[str]] | Sequence[str] | str
    ) -> int:
        """Store labelled texts; similar texts get these labels from the next prediction on.

        Args:
            texts: The texts, or one text.
            labels: Label ids of each text; for one text its label ids, or its only one.

        Returns:
            How many were stored.

        Raises:
            DataError: If a text or label cannot be stored; nothing is stored then.
        """
        labels = [labels] if isinstance(labels, str) else labels
        of_one = isinstance(texts, str) and all(isinstance(label, str) for label in labels)
        given: Any = [labels] if of_one else list(labels)
        return self.require_store().add_examples(as_texts(texts), given)

    def require_store(self) -> ChangeStore:
        """Return the run's store of changes.

        Raises:
            RunError: If this predictor was not loaded from a run folder of its own.
        """
        if self.store is None:
            raise RunError("only a model that was loaded from a run folder can be changed")
        if self.downloaded:
            raise RunError(
                f"{self.folder} is in the cache of the hub, which other programs read, too; call "
                "save(PATH) and change the model of umpteen.Predictor.load(PATH)"
            )
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

    def save(self, path: str | Path) -> None:
        """Copy the run folder as of one moment; a temporary run moves there, with the model.

        Args:
            path: A folder that does not exist yet.

        Raises:
            RunError: If this predictor was not loaded from a run folder, or the path exists.
        """
        if self.folder is None:
            raise RunError("only a model that was loaded from a run folder can be saved")
        if Path(path).exists():
            raise RunError(f"{path} exists; name a folder that does not")
        backup(self.folder, path, self.labels)
        if self.temporary is not None:
            # Nothing else will know the temporary folder; later changes go to the new one.
            vars(self).update(vars(self.load(path, **vars(self.load_options))))

    @classmethod
    def from_pretrained(cls, name: str, *, device: str = "auto", **options: Any) -> Self:
        """Load a run from the Hugging Face hub, or from a folder.

        A downloaded model cannot be changed; save it and load the copy.

        Args:
            name: ``organization/name``, or a folder.
            device: ``auto``, ``cpu`` or ``cuda``.
            **options: Of huggingface_hub's ``from_pretrained``, such as ``revision``.

        Raises:
            ConfigError: If it is not there or cannot be reached.
        """
        folder = hub.download(name, **options)
        predictor = cls.load(folder, device=device)
        predictor.downloaded = folder != Path(name)
        return predictor
