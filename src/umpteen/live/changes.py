"""What was changed about a run's labels, as values: records in, state out. No files here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from umpteen.data.labels import LabelSet
from umpteen.errors import DataError

LONGEST_ID = 512
LONGEST_TEXT = 20_000
LABELS_PER_RECORD = 1000


@dataclass(frozen=True)
class NewLabel:
    """A label to add: the user's id, a text to read, and optionally a longer one."""

    id: str
    text: str
    content: str = ""

    def check(self) -> NewLabel:
        """This label, if it can be one.

        Raises:
            DataError: If id or text is missing, too long, or not text.
        """
        fields = (("id", self.id, LONGEST_ID), ("text", self.text, LONGEST_TEXT))
        for name, value, most in (*fields, ("content", self.content, LONGEST_TEXT)):
            if not isinstance(value, str):
                raise DataError(f"the {name} of a label must be a string, not {value!r:.60}")
            if len(value) > most:
                raise DataError(
                    f"the {name} of a label has {len(value)} characters; at most {most} are kept"
                )
            if any(0xD800 <= ord(c) <= 0xDFFF for c in value):
                raise DataError(f"the {name} of a label holds half a character (a surrogate)")
        if not self.id.strip() or not self.text.strip():
            raise DataError("a label needs an id and a text, neither of them blank")
        return self


@dataclass
class LabelChanges:
    """All changes so far: labels added, in their order, and ids retired.

    A row, once given, is never given again: added labels follow the trained ones in the order they
    came, and stay when they are retired.
    """

    trained: LabelSet
    added: list[NewLabel] = field(default_factory=list)
    added_rows: dict[str, int] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.trained) + len(self.added)

    def __contains__(self, label_id: object) -> bool:
        return label_id in self.added_rows or label_id in self.trained.rows

    def row(self, label_id: str) -> int:
        """The row of an id.

        Raises:
            DataError: If no label has it.
        """
        row = self.added_rows.get(label_id)
        return self.trained.row(label_id) if row is None else row

    def label(self, label_id: str) -> NewLabel:
        """The label of an id, trained or added.

        Raises:
            DataError: If no label has it.
        """
        row = self.row(label_id)
        if row >= len(self.trained):
            return self.added[row - len(self.trained)]
        contents = self.trained.contents
        content = contents[row] if contents is not None else ""
        return NewLabel(label_id, self.trained.titles[row], content)

    def apply(self, record: dict[str, Any]) -> None:
        """Take in a record; one that was taken in before changes nothing."""
        if record["do"] == "add":
            for fields in record["labels"]:
                if fields["id"] not in self:
                    self.added_rows[fields["id"]] = len(self)
                    self.added.append(NewLabel(**fields))
        elif record["do"] == "retire":
            self.retired.update(record["ids"])
        else:
            self.retired.difference_update(record["ids"])

    def add(self, labels: Sequence[NewLabel]) -> dict[str, Any] | None:
        """The record that adds labels, or None where all of them are there already.

        Raises:
            DataError: If an id is taken by another text, or was retired.
        """
        new: dict[str, NewLabel] = {}
        for label in labels:
            known = new.get(label.check().id)
            if known is None and label.id in self:
                known = self.label(label.id)
            if known is None:
                new[label.id] = label
            elif known != label:
                raise DataError(
                    f"the id {label.id!r} is taken by the label {known.text!r:.80}; ids are never "
                    "given twice, so choose another"
                )
            elif label.id in self.retired:
                raise DataError(f"the label {label.id!r} was retired; restore it instead")
        return _adding(new.values()) if new else None

    def retire(self, ids: Sequence[str]) -> dict[str, Any] | None:
        """The record that retires labels, or None where all of them are retired already.

        Raises:
            DataError: If no label has one of the ids.
        """
        return self._moving("retire", [i for i in self._known(ids) if i not in self.retired])

    def restore(self, ids: Sequence[str]) -> dict[str, Any] | None:
        """The record that undoes ``retire``, or None where none of them is retired.

        Raises:
            DataError: If no label has one of the ids.
        """
        return self._moving("restore", [i for i in self._known(ids) if i in self.retired])

    def records(self) -> Iterator[dict[str, Any]]:
        """As few records as come to the same."""
        for start in range(0, len(self.added), LABELS_PER_RECORD):
            yield _adding(self.added[start : start + LABELS_PER_RECORD])
        retired = sorted(self.retired)
        for start in range(0, len(retired), LABELS_PER_RECORD):
            yield {"do": "retire", "ids": retired[start : start + LABELS_PER_RECORD]}

    def _known(self, ids: Sequence[str]) -> list[str]:
        for label_id in ids:
            self.row(label_id)
        return list(dict.fromkeys(ids))

    def _moving(self, what: str, ids: list[str]) -> dict[str, Any] | None:
        return {"do": what, "ids": ids} if ids else None


def _adding(labels: Iterable[NewLabel]) -> dict[str, Any]:
    fields = [
        {"id": label.id, "text": label.text} | ({"content": label.content} if label.content else {})
        for label in labels
    ]
    return {"do": "add", "labels": fields}
