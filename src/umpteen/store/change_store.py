"""The store of one run: polled, read and changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from umpteen.data.labels import LabelSet
from umpteen.errors import NotWritten
from umpteen.store.checks import NewLabel
from umpteen.store.damage import Damage
from umpteen.store.reader import AuditEntry, Reader, damaged
from umpteen.store.state import StoreState
from umpteen.store.writer import Writer
from umpteen.store.writing import Planner, plan_examples, plan_new_labels, plan_retirements

FILE_NAME = "changes.sqlite"
REVISION_NAME = "changes.revision"
WRITE_BUSY_SECONDS = 5.0


class ChangeStore:
    """Labels added, retired or restored and examples added after training.

    A change is on the disk when the call returns, and every process that reads the run sees it from
    its next ``state()`` on. A change that is in force already is granted and writes nothing. Reads
    never wait for a writer. Threads may share a store; after a fork each process uses its own
    connections.

    Use ``ChangeStore.open``. A run without changes has no file; the first change creates it.
    """

    def __init__(
        self,
        run: str | Path,
        labels: LabelSet,
        *,
        read_only: bool = False,
        tolerant: bool = False,
        busy_seconds: float = WRITE_BUSY_SECONDS,
    ) -> None:
        self.path = Path(run).absolute() / FILE_NAME
        self.labels = labels
        self.read_only = read_only
        self.tolerant = tolerant
        self._busy_seconds = busy_seconds
        revision_file = self.path.with_name(REVISION_NAME)
        self.reader = Reader(self.path, revision_file, labels, tolerant=tolerant)
        self._writer = Writer(self.path, revision_file, labels, self.reader.poll, busy_seconds)

    @classmethod
    def open(
        cls,
        run: str | Path,
        labels: LabelSet,
        *,
        read_only: bool = False,
        tolerant: bool = False,
        busy_seconds: float = WRITE_BUSY_SECONDS,
    ) -> Self:
        """Open the store of a run; rows are read when ``state`` is called.

        Args:
            run: The run folder.
            labels: The labels it was trained with.
            read_only: Whether to refuse changes.
            tolerant: Whether to serve what can be read of a damaged store and refuse changes,
                instead of raising.
            busy_seconds: How long a change waits for another writer.

        Returns:
            The store.

        Raises:
            StoreDamaged: If the store is damaged, missing or older than it was, and ``tolerant``
                is False.
            LabelMismatch: If it belongs to other labels.
        """
        store = cls(run, labels, read_only=read_only, tolerant=tolerant, busy_seconds=busy_seconds)
        _ = store.revision
        return store

    @property
    def revision(self) -> int:
        """Number of changes granted so far; costs microseconds where nothing has changed.

        Raises:
            StoreDamaged: If the store is damaged and not ``tolerant``.
        """
        return self.reader.revision()

    @property
    def damage(self) -> Damage | None:
        """What is wrong with the store, as far as it has been read; None while nothing is."""
        return self.reader.damage()

    def state(self) -> StoreState:
        """Return the state of now; the same object as before where nothing has changed.

        Raises:
            StoreDamaged: If the store is damaged and not ``tolerant``.
        """
        return self.reader.state()

    def read(self, after: StoreState | None = None) -> StoreState:
        """Read the state of now in one transaction.

        Returns:
            The state; ``after`` itself where nothing has changed.

        Raises:
            StoreDamaged: If the store is damaged and not ``tolerant``.
        """
        return self.reader.read(after)

    def example_texts(self, digests: Sequence[bytes]) -> list[str]:
        """Read the texts of examples.

        Returns:
            One text per digest; empty where the text cannot be read and the store is tolerant.

        Raises:
            StoreDamaged: If a text cannot be read and the store is not tolerant.
        """
        return self.reader.texts(digests)

    def audit_trail(self, limit: int | None = None) -> list[AuditEntry]:
        """Return the changes granted so far, oldest first."""
        return self.reader.audit_trail(limit)

    def add_labels(self, labels: Sequence[NewLabel], *, who: str = "") -> int:
        """Add labels, all or none; a label that is there already with the same text is skipped.

        Returns:
            How many were new.

        Raises:
            DataError: If a label cannot be added: blank, too long, its id taken or retired.
            NotWritten: If the change could not be written; nothing has changed.
            StoreDamaged: If the store is damaged.
        """
        return self._change(plan_new_labels(self.labels, labels), who)

    def retire_labels(self, ids: Sequence[str], *, who: str = "") -> int:
        """Retire labels, all or none: no prediction returns them. Their ids and rows stay taken.

        Args:
            ids: Ids of trained or added labels.
            who: The person or program, for the audit trail.

        Returns:
            How many were not retired before.

        Raises:
            DataError: If no label has one of the ids.
            NotWritten: If the change could not be written; nothing has changed.
            StoreDamaged: If the store is damaged.
        """
        return self._change(plan_retirements(self.labels, ids, retired=True), who)

    def restore_labels(self, ids: Sequence[str], *, who: str = "") -> int:
        """Undo ``retire_labels``, for all or none; return how many were retired."""
        return self._change(plan_retirements(self.labels, ids, retired=False), who)

    def add_examples(
        self, texts: Sequence[str], labels: Sequence[Sequence[str]], *, who: str = ""
    ) -> int:
        """Add labelled texts, all or none; a text that is there already gets the new labels.

        Args:
            texts: The texts.
            labels: The label ids of each text, at least one.
            who: The person or program, for the audit trail.

        Returns:
            How many texts were new or got other labels.

        Raises:
            DataError: If a text is blank, too long or not valid, or a label unknown or retired.
            NotWritten: If the change could not be written; nothing has changed.
            StoreDamaged: If the store is damaged.
        """
        return self._change(plan_examples(self.labels, texts, labels), who)

    def __getstate__(self) -> dict[str, object]:
        """Return what opens the store again; connections stay behind."""
        return {
            "run": self.path.parent,
            "labels": self.labels,
            "read_only": self.read_only,
            "tolerant": self.tolerant,
            "busy_seconds": self._busy_seconds,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def close(self) -> None:
        """Close the connections; the store can be used again afterwards."""
        self.reader.close()
        self._writer.close()

    def _change(self, plan: Planner, who: str) -> int:
        if self.read_only:
            raise NotWritten(f"{self.path} is open for reading only; nothing was changed")
        damage = self.damage
        if damage is not None:
            raise damaged(damage)
        return self._writer.change(plan, who)
