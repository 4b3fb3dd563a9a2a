"""Changes to a store: decided completely before the first row is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.store.checks import NewLabel, check_examples
from umpteen.store.schema import (
    Header,
    change_crc,
    example_crc,
    label_crc,
    retirement_crc,
    write_header,
)
from umpteen.store.state import ROW_TYPE

MAX_WHO_CHARACTERS = 200


@dataclass
class Change:
    """Rows to write; an empty change writes nothing."""

    kind: str
    labels: list[tuple[int, NewLabel]] = field(default_factory=list)
    """(seq, label)"""
    retirements: list[tuple[int, bool]] = field(default_factory=list)
    """(row, whether it is retired now)"""
    new_retirements: int = 0
    """How many of them have no row in the table yet."""
    examples: list[tuple[int, bytes, bytes, str]] = field(default_factory=list)
    """(seq, digest, packed label rows, text); a known seq gets new labels"""

    @property
    def touched(self) -> list[int]:
        """Sequence numbers of added labels or examples, or rows of retired or restored labels."""
        return [
            *(seq for seq, _ in self.labels),
            *(row for row, _ in self.retirements),
            *(seq for seq, *_ in self.examples),
        ]


Planner = Callable[[sqlite3.Connection, Header], Change]


def plan_new_labels(trained: LabelSet, labels: Sequence[NewLabel]) -> Planner:
    """Return a function that decides which labels to add.

    Raises:
        DataError: If a label cannot be stored at all; later, if its id is taken or retired.
    """
    checked = [label.check() for label in labels]

    def plan(connection: sqlite3.Connection, header: Header) -> Change:
        ids = _Ids(connection, trained)
        new: dict[str, NewLabel] = {}
        for label in checked:
            known = new.get(label.id) or ids.label(label.id)
            if known is None:
                new[label.id] = label
            elif known != label:
                raise DataError(
                    f"the id {label.id!r} belongs to the label {known.text!r:.80}; an id is never "
                    "used twice, so choose another"
                )
            elif label.id not in new and ids.is_retired(ids.row(label.id)):
                raise DataError(f"the label {label.id!r} is retired; restore it instead")
        return Change("add_labels", labels=list(enumerate(new.values(), header.n_labels)))

    return plan


def plan_retirements(trained: LabelSet, label_ids: Sequence[str], *, retired: bool) -> Planner:
    """Return a function that decides which labels to retire or to restore.

    Raises:
        DataError: Later, if no label has one of the ids.
    """
    wanted = list(dict.fromkeys(label_ids))

    def plan(connection: sqlite3.Connection, header: Header) -> Change:
        ids = _Ids(connection, trained)
        change = Change("retire" if retired else "restore")
        for row in [ids.row(label_id) for label_id in wanted]:
            state = ids.retirement(row)
            if bool(state) != retired:
                change.retirements.append((row, retired))
                change.new_retirements += state is None
        return change

    return plan


def plan_examples(
    trained: LabelSet, texts: Sequence[str], labels: Sequence[Sequence[str]]
) -> Planner:
    """Return a function that decides which examples are new or get other labels.

    Raises:
        DataError: If an example cannot be stored at all; later, if a label is unknown or retired.
    """
    checked = check_examples(texts, labels)

    def plan(connection: sqlite3.Connection, header: Header) -> Change:
        ids = _Ids(connection, trained)
        change = Change("add_examples")
        n_examples = header.n_examples
        last: dict[bytes, tuple[str, bytes]] = {}
        for position, new in enumerate(checked, 1):
            rows = _rows_of_example(ids, position, new.label_ids)
            last[new.digest] = (new.text, np.array(rows, ROW_TYPE).tobytes())
        for digest, (text, packed) in last.items():
            known = connection.execute(
                "SELECT seq, label_rows FROM examples WHERE digest = ?", (digest,)
            ).fetchone()
            if known is None:
                change.examples.append((n_examples, digest, packed, text))
                n_examples += 1
            elif known[1] != packed:
                change.examples.append((known[0], digest, packed, text))
        return change

    return plan


def write_change(
    connection: sqlite3.Connection, header: Header, change: Change, who: str
) -> Header:
    """Write a change inside a transaction."""
    revision = header.revision + 1
    write_audit(connection, revision, change.kind, change.touched, who)
    connection.executemany(
        "INSERT INTO labels (seq, crc, revision, id, text, content) VALUES (?, ?, ?, ?, ?, ?)",
        (
            (seq, label_crc(seq, revision, new.id, new.text, new.content), revision, new.id,
             new.text, new.content)
            for seq, new in change.labels
        ),
    )  # fmt: skip
    connection.executemany(
        "INSERT OR REPLACE INTO retirements (row, crc, revision, retired) VALUES (?, ?, ?, ?)",
        (
            (row, retirement_crc(row, revision, int(out)), revision, int(out))
            for row, out in change.retirements
        ),
    )
    connection.executemany(
        "INSERT INTO examples (seq, crc, revision, digest, label_rows, text) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (seq) DO UPDATE SET "
        "crc = excluded.crc, revision = excluded.revision, label_rows = excluded.label_rows",
        (
            (seq, example_crc(seq, revision, digest, packed), revision, digest, packed, text)
            for seq, digest, packed, text in change.examples
        ),
    )
    after = replace(
        header,
        revision=revision,
        n_labels=header.n_labels + len(change.labels),
        n_retirements=header.n_retirements + change.new_retirements,
        n_examples=max([header.n_examples, *(row[0] + 1 for row in change.examples)]),
    )
    write_header(connection, after)
    return after


def write_audit(
    connection: sqlite3.Connection, revision: int, kind: str, touched: Sequence[int], who: str
) -> None:
    """Write a row of the audit trail."""
    packed = np.array(touched, ROW_TYPE).tobytes()
    crc = change_crc(revision, kind, len(touched), packed)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    who = who[:MAX_WHO_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    connection.execute(
        "INSERT INTO changes (revision, crc, time, kind, count, who, touched) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (revision, crc, now, kind, len(touched), who, packed),
    )


class _Ids:
    """Look up labels by id within one transaction, by index: costs nothing per stored label."""

    def __init__(self, connection: sqlite3.Connection, trained: LabelSet) -> None:
        self._connection = connection
        self._trained = trained
        self._rows: Mapping[str, int] = trained.rows
        self._seen: dict[str, int] = {}
        self._retirements: dict[int, int | None] = {}

    def label(self, label_id: str) -> NewLabel | None:
        row = self._rows.get(label_id)
        if row is not None:
            contents = self._trained.contents
            content = contents[row] if contents is not None else ""
            return NewLabel(label_id, self._trained.titles[row], content)
        found = self._connection.execute(
            "SELECT id, text, content FROM labels WHERE id = ?", (label_id,)
        ).fetchone()
        return None if found is None else NewLabel(*found)

    def row(self, label_id: str) -> int:
        row = self._rows.get(label_id)
        if row is None:
            row = self._seen.get(label_id)
        if row is None:
            try:
                found = self._connection.execute(
                    "SELECT seq FROM labels WHERE id = ?", (label_id,)
                ).fetchone()
            except (UnicodeEncodeError, sqlite3.InterfaceError, sqlite3.ProgrammingError):
                found = None  # not a string, or one that cannot be stored
            if found is None:
                raise DataError(f"no label has the id {label_id!r:.200}")
            row = self._seen[label_id] = len(self._trained) + int(found[0])
        return row

    def retirement(self, row: int) -> int | None:
        if row not in self._retirements:
            found = self._connection.execute(
                "SELECT retired FROM retirements WHERE row = ?", (row,)
            ).fetchone()
            self._retirements[row] = None if found is None else int(found[0])
        return self._retirements[row]

    def is_retired(self, row: int) -> bool:
        return bool(self.retirement(row))


def _rows_of_example(ids: _Ids, position: int, label_ids: Sequence[str]) -> list[int]:
    rows = []
    for label_id in label_ids:
        try:
            row = ids.row(label_id)
        except DataError as error:
            raise DataError(f"example {position}: {error}; add the label first") from None
        if ids.is_retired(row):
            raise DataError(
                f"example {position}: the label {label_id!r} is retired; restore it first"
            )
        rows.append(row)
    return rows
