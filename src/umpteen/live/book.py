"""The changes of one run on disk: checked, written ahead, followed. Needs no model."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from umpteen.data.labels import LabelSet
from umpteen.errors import RunError
from umpteen.journal import Journal
from umpteen.live.changes import LabelChanges, NewLabel
from umpteen.runs import RunFolder

FILE_NAME = "labels.journal"
WORTH_WRITING_ANEW = 256


class LabelBook:
    """Who was added to a run and who was retired, kept in its folder.

    Every change is on the disk when the call returns, and seen by every process that asks
    afterwards. Changes that are in force already are granted and write nothing.

    Args:
        run: The run folder.
        trained: The labels it was trained with.
        tolerant: Whether to answer from what can be read of a damaged journal, instead of raising.

    Raises:
        JournalDamaged: If the journal is damaged and ``tolerant`` is False.
        LabelMismatch: If it was written for other labels.
    """

    def __init__(self, run: str | Path, trained: LabelSet, *, tolerant: bool = False) -> None:
        self.path = Path(run) / FILE_NAME
        self.journal = Journal(
            self.path,
            kind="labels",
            belongs_to=trained.fingerprint,
            tolerant=tolerant,
            remedy="put the file back from a copy, or keep what can be read with: "
            f"umpteen labels repair {run}",
        )
        self.changes = LabelChanges(trained)
        self.generation = 0
        """Rises with every change that is taken in, whoever made it."""
        self.lock = threading.RLock()
        self.refresh()

    @classmethod
    def open(cls, run: str | Path, *, tolerant: bool = False) -> Self:
        """The book of a run folder.

        Raises:
            RunError: If it is no run.
        """
        labels, _ = RunFolder(run).require().read_labels()
        return cls(run, labels, tolerant=tolerant)

    @property
    def damage(self) -> str:
        """Why nothing can be changed, as a sentence; empty while all is well."""
        return self.journal.damage

    def refresh(self) -> None:
        """Take in what others changed."""
        with self.lock:
            tail = self.journal.follow()
            self._apply(tail.records, anew=tail.anew)

    def add(self, labels: Sequence[NewLabel]) -> int:
        """Add labels, all or none of them.

        Args:
            labels: The labels; one that is there already with the same text is left as it is.

        Returns:
            How many were new.

        Raises:
            DataError: If a label cannot be added; the message says which and why.
            NotWritten: If it could not be put on the disk.
        """
        record = self._change(lambda changes: changes.add(labels))
        return len(record["labels"]) if record else 0

    def retire(self, ids: Sequence[str]) -> int:
        """Take labels out of every answer, all or none of them; how many were not out yet.

        Raises:
            DataError: If no label has one of the ids.
            NotWritten: If it could not be put on the disk.
        """
        record = self._change(lambda changes: changes.retire(ids))
        return len(record["ids"]) if record else 0

    def restore(self, ids: Sequence[str]) -> int:
        """Undo ``retire``, for all or none of them; how many were out.

        Raises:
            DataError: If no label has one of the ids.
            NotWritten: If it could not be put on the disk.
        """
        record = self._change(lambda changes: changes.restore(ids))
        return len(record["ids"]) if record else 0

    def compact(self, *, at_least: int = WORTH_WRITING_ANEW) -> bool:
        """Write the journal anew with as few records as come to the same, where that halves it.

        Args:
            at_least: Leave a journal with fewer records as it is.

        Returns:
            Whether it was written.

        Raises:
            NotWritten: If that failed; the journal is as it was.
        """
        if self.journal.n_records < at_least:
            return False
        with self.lock, self.journal.changing() as tail:
            self._apply(tail.records, anew=tail.anew)
            records = list(self.changes.records())
            if self.journal.n_records < max(at_least, 2 * len(records)):
                return False
            self.journal.replace(records)
        return True

    def _change(
        self, decide: Callable[[LabelChanges], dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        with self.lock, self.journal.changing() as tail:
            self._apply(tail.records, anew=tail.anew)
            record = decide(self.changes)
            if record is not None:
                self.journal.append(record)
                self._apply([record])
            return record

    def _apply(self, records: Sequence[dict[str, Any]], *, anew: bool = False) -> None:
        if anew:
            self.changes = LabelChanges(self.changes.trained)
        for record in records:
            self.changes.apply(record)
        self.generation += anew or bool(records)


def repair(run: str | Path) -> tuple[Path, LabelChanges] | None:
    """Keep what can be read of a damaged journal; the damaged file is put aside.

    Args:
        run: The run folder.

    Returns:
        Where the damaged file is now and what was kept; None if nothing was damaged.
    """
    book = LabelBook.open(run, tolerant=True)
    if not book.damage:
        return None
    aside = next(
        place
        for n in range(1, 10_000)
        if not (place := book.path.with_name(f"{FILE_NAME}.damaged-{n}")).exists()
    )
    with book.journal.changing(despite_damage=True) as tail:
        for record in tail.records:
            book.changes.apply(record)
        shutil.copy2(book.path, aside)
        book.journal.replace(list(book.changes.records()))
    return aside, book.changes


def carry(old: str | Path, new: str | Path) -> dict[str, int]:
    """Make the changes of one run to another, as far as they are not in it already.

    Args:
        old: A run folder with changes.
        new: A run folder with other trained labels, say of a later training.

    Returns:
        How many labels were added and retired.

    Raises:
        RunError: If both are the same folder.
        DataError: If an id means something else in the other run.
    """
    if Path(old).resolve() == Path(new).resolve():
        raise RunError(f"{old} and {new} are the same run; name another to carry changes to")
    before, after = LabelBook.open(old), LabelBook.open(new)
    wanted = [label for label in before.changes.added if label.id not in after.changes]
    added = after.add(wanted)
    out = [label_id for label_id in sorted(before.changes.retired) if label_id in after.changes]
    return {"added": added, "retired": after.retire(out)}
