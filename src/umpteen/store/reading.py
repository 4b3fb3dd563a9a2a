"""Read the state of a store in one transaction: all of it, or what is new since another state."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from umpteen.data.labels import LabelSet
from umpteen.store.labels import AddedLabels
from umpteen.store.schema import (
    BadStore,
    Header,
    change_crc,
    example_crc,
    label_crc,
    read_header,
    retirement_crc,
)
from umpteen.store.state import ROW_TYPE, StoredExamples, StoreState, with_retirements

Row = tuple[Any, ...]
LABELS = "SELECT crc, seq, revision, id, text, content FROM labels"
RETIREMENTS = "SELECT crc, row, revision, retired FROM retirements"
EXAMPLES = "SELECT crc, seq, revision, digest, label_rows FROM examples"
MAX_LOST_ROWS = 1_000_000
_NO_EXAMPLE = (0, 0, 0, b"", b"")
CHANGES = "SELECT crc, revision, kind, count, touched FROM changes"


@dataclass
class BadRows:
    """Rows that are missing or fail their checksums, by table."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, count: int = 1) -> None:
        """Count rows."""
        if count:
            self.counts[table] = self.counts.get(table, 0) + count

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        parts = ", ".join(f"{count} of {table}" for table, count in self.counts.items())
        return f"rows are missing or fail their checksums ({parts})"


@contextlib.contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything inside the block from one moment."""
    connection.execute("BEGIN")
    collecting = gc.isenabled()
    gc.disable()  # many tuples are made at once, none of them garbage
    try:
        yield
    finally:
        if collecting:
            gc.enable()
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def read_state(
    connection: sqlite3.Connection, header: Header, trained: LabelSet, after: StoreState | None
) -> tuple[StoreState, BadRows]:
    """Read the state, inside ``reading``.

    Returns:
        The state and what could not be read of it. An added label that cannot be read keeps its
        row, under an id of its own, and is retired; an example keeps its position without labels.
    """
    known = after is not None and (after.store_id, after.damage) == (header.id, None)
    if after is not None and known and after.revision == header.revision:
        return after, BadRows()
    base = after if after is not None and known and after.revision < header.revision else None
    base = base if base is not None else StoreState.empty(trained)
    bad = BadRows()
    header = _believable(connection, header, bad)
    added, lost = _read_labels(connection, base.added, header.n_labels, bad)
    retired = _read_retirements(connection, base.revision, header.n_retirements, bad)
    n_labels = len(trained) + len(added)
    retired = {row: out for row, out in retired.items() if 0 <= row < n_labels}
    retired.update({len(trained) + seq: True for seq in lost})
    examples = _read_examples(connection, base, header.n_examples, n_labels, bad)
    rows = with_retirements(base.retired_rows, retired)
    return StoreState(trained, header.id, header.revision, added, rows, examples), bad


def salvage_header(connection: sqlite3.Connection, fingerprint: str) -> Header:
    """Read the header; where it is damaged, derive it from the tables."""
    with contextlib.suppress(sqlite3.DatabaseError, BadStore):
        return read_header(connection)
    counts = []
    for query in (
        "SELECT max(revision) FROM changes",
        "SELECT max(seq) + 1 FROM labels",
        "SELECT count(*) FROM retirements",
        "SELECT max(seq) + 1 FROM examples",
    ):
        value = None
        with contextlib.suppress(sqlite3.DatabaseError):
            (value,) = connection.execute(query).fetchone()
        counts.append(value if isinstance(value, int) else 0)
    return Header("", fingerprint, *counts)


def _believable(connection: sqlite3.Connection, header: Header, bad: BadRows) -> Header:
    """Return the header with counts that the tables can hold; a forged one could be endless."""
    n_labels = _believable_count(connection, "labels", header.n_labels, bad)
    n_examples = _believable_count(connection, "examples", header.n_examples, bad)
    return replace(header, n_labels=n_labels, n_examples=n_examples)


def _believable_count(connection: sqlite3.Connection, table: str, count: int, bad: BadRows) -> int:
    last = None
    with contextlib.suppress(sqlite3.DatabaseError):
        (last,) = connection.execute(f"SELECT max(seq) FROM {table}").fetchone()
    if not isinstance(last, int) or count <= last + 1 + MAX_LOST_ROWS:
        return count
    bad.add(table, count - last - 1)
    return max(last + 1, 0)


def lost_label_id(seq: int) -> str:
    """Return the id that stands for an added label that cannot be read."""
    return f"unreadable-label-{seq}"


def _read_labels(
    connection: sqlite3.Connection, base: AddedLabels, n_labels: int, bad: BadRows
) -> tuple[AddedLabels, list[int]]:
    rows = _read_range(connection, LABELS, label_crc, len(base), n_labels)
    lost = [seq for seq, row in enumerate(rows, len(base)) if row is None]
    bad.add("labels", len(lost))
    ids = [lost_label_id(seq) if row is None else row[3] for seq, row in enumerate(rows, len(base))]
    texts = [label_id if row is None else row[4] for row, label_id in zip(rows, ids, strict=True)]
    contents = ["" if row is None else row[5] for row in rows]
    return base.extended(ids, texts, contents), lost


def _read_examples(
    connection: sqlite3.Connection, base: StoreState, n_examples: int, n_labels: int, bad: BadRows
) -> StoredExamples:
    examples, known = base.examples, len(base.examples)
    if not known and not n_examples:
        return examples
    new = _read_range(connection, EXAMPLES, example_crc, known, n_examples)
    changed: list[Row] = []
    if known:
        query = f"{EXAMPLES} INDEXED BY examples_by_revision WHERE revision > ? AND seq < ?"
        changed = connection.execute(query, (base.revision, known)).fetchall()
    replaced: dict[int, Row] = {}
    for row in changed:
        if good_row(row, example_crc) and _in_range(row[4], n_labels):
            replaced[row[1]] = row
        else:
            bad.add("examples")
    rows = [_NO_EXAMPLE if row is None else row for row in new]
    if not _in_range(b"".join([row[4] for row in rows]), n_labels):
        rows = [row if _in_range(row[4], n_labels) else _NO_EXAMPLE for row in rows]
    bad.add("examples", sum(row is _NO_EXAMPLE for row in rows))
    for position, row in enumerate(rows, known):
        if row[3]:
            examples.positions[row[3]] = position
    return StoredExamples(
        examples.digests.updated([row[3] for row in rows]),
        examples.packed_rows.updated(
            [row[4] for row in rows], {seq: row[4] for seq, row in replaced.items()}
        ),
        examples.revisions.updated(
            [row[2] for row in rows], {seq: row[2] for seq, row in replaced.items()}
        ),
        examples.positions,
    )


def _read_retirements(
    connection: sqlite3.Connection, after: int, n_rows: int, bad: BadRows
) -> dict[int, bool]:
    if after:
        query = f"{RETIREMENTS} INDEXED BY retirements_by_revision WHERE revision > ?"
        rows = connection.execute(query, (after,)).fetchall()
    else:
        rows = whole_table(connection, RETIREMENTS, "row")
    good = [row for row in rows if good_row(row, retirement_crc)]
    if len(good) == len(rows) and (after or len(rows) == n_rows):
        return {row[1]: bool(row[3]) for row in rows}
    bad.add("retirements", max(len(rows), 0 if after else n_rows) - len(good))
    # The list of changes has the same information. In doubt a label stays retired.
    found = _replayed_retirements(connection)
    found.update({row[1]: True for row in rows if isinstance(row[1], int)})
    found.update({row[1]: bool(row[3]) for row in good})
    return found


def _replayed_retirements(connection: sqlite3.Connection) -> dict[int, bool]:
    found: dict[int, bool] = {}
    for row in sorted(whole_table(connection, CHANGES, "revision"), key=lambda row: row[1]):
        if good_row(row, change_crc) and row[2] in ("retire", "restore"):
            touched = np.frombuffer(row[4], ROW_TYPE).tolist()
            found.update(dict.fromkeys(touched, row[2] == "retire"))
    return found


def whole_table(connection: sqlite3.Connection, query: str, key: str) -> list[Row]:
    """Read all rows; past a damaged page, from the other end."""
    found: dict[Any, Row] = {}
    for order in ("ASC", "DESC"):
        try:
            for row in connection.execute(f"{query} ORDER BY {key} {order}"):
                found[row[1]] = row
            return list(found.values())
        except sqlite3.DatabaseError:
            continue
    return list(found.values())


def _read_range(
    connection: sqlite3.Connection, query: str, crc: Callable[..., int], first: int, stop: int
) -> list[Row | None]:
    """Read the rows ``first`` to ``stop`` of a table; None for one that cannot be read."""
    if stop <= first:
        return []
    rows: list[Row] = []
    with contextlib.suppress(sqlite3.DatabaseError):
        rows = connection.execute(
            f"{query} WHERE seq >= ? AND seq < ? ORDER BY seq", (first, stop)
        ).fetchall()
    if len(rows) == stop - first and all(
        row[1] == seq and good_row(row, crc) for seq, row in enumerate(rows, first)
    ):
        return list(rows)
    found: list[Row | None] = []
    for seq in range(first, stop):
        row = None
        with contextlib.suppress(sqlite3.DatabaseError):
            row = connection.execute(f"{query} WHERE seq = ?", (seq,)).fetchone()
        found.append(row if row is not None and good_row(row, crc) else None)
    return found


def good_row(row: Row, crc: Callable[..., int]) -> bool:
    """Return whether a row, whose first field is its checksum, is as it was written."""
    try:
        return row[0] == crc(*row[1:])
    except (TypeError, ValueError, AttributeError):
        return False  # a field of another type


def _in_range(packed: bytes, n_labels: int) -> bool:
    if len(packed) % ROW_TYPE.itemsize:
        return False
    rows = np.frombuffer(packed, ROW_TYPE)
    return not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < n_labels)
