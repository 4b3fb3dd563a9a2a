"""Tables, checksums and the header row of a store.

SQLite does not checksum its pages, so every row carries a CRC-32 of its fields, and the header row
counts the rows of each table. The text of an example is checked against its SHA-256 instead.
"""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import dataclass

from umpteen.errors import RunError

APPLICATION_ID = 0x756D7074  # "umpt"
SCHEMA_VERSION = 1
TABLES = (
    "CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, "
    "fingerprint TEXT NOT NULL, revision INTEGER NOT NULL, n_labels INTEGER NOT NULL, "
    "n_retirements INTEGER NOT NULL, n_examples INTEGER NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE changes (revision INTEGER PRIMARY KEY, crc INTEGER NOT NULL, "
    "time TEXT NOT NULL, kind TEXT NOT NULL, count INTEGER NOT NULL, who TEXT NOT NULL, "
    "touched BLOB NOT NULL)",
    "CREATE TABLE labels (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, "
    "revision INTEGER NOT NULL REFERENCES changes, id TEXT NOT NULL UNIQUE, "
    "text TEXT NOT NULL, content TEXT NOT NULL)",
    "CREATE TABLE retirements (row INTEGER PRIMARY KEY, crc INTEGER NOT NULL, "
    "revision INTEGER NOT NULL REFERENCES changes, retired INTEGER NOT NULL)",
    "CREATE INDEX retirements_by_revision ON retirements (revision)",
    "CREATE TABLE examples (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, "
    "revision INTEGER NOT NULL REFERENCES changes, digest BLOB NOT NULL UNIQUE, "
    "label_rows BLOB NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX examples_by_revision ON examples (revision)",
)


class BadStore(Exception):
    """The file is not a store, or a row of it fails its checksum."""


@dataclass(frozen=True)
class Header:
    """The header row: which history this is, how long it is, and how many rows there must be."""

    id: str
    fingerprint: str
    revision: int = 0
    n_labels: int = 0
    n_retirements: int = 0
    n_examples: int = 0

    @property
    def crc(self) -> int:
        """The checksum of the fields."""
        counts = (self.revision, self.n_labels, self.n_retirements, self.n_examples)
        return zlib.crc32(f"{self.id},{self.fingerprint},{counts}".encode())


def create_tables(connection: sqlite3.Connection, header: Header) -> None:
    """Create the tables with a header; inside a transaction."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for statement in TABLES:
        connection.execute(statement)
    write_header(connection, header)


def write_header(connection: sqlite3.Connection, header: Header) -> None:
    """Write the header row."""
    connection.execute(
        "INSERT OR REPLACE INTO store VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
        (
            header.id,
            header.fingerprint,
            header.revision,
            header.n_labels,
            header.n_retirements,
            header.n_examples,
            header.crc,
        ),
    )


def check_tables(connection: sqlite3.Connection) -> bool:
    """Check that the file is a store of this version.

    Returns:
        False if the file holds nothing yet.

    Raises:
        BadStore: If the file is something else.
        RunError: If it was written by a newer version.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if not version and not application and not found:
        return False
    if application == APPLICATION_ID and version > SCHEMA_VERSION:
        raise RunError(
            f"the store of changes has format {version}; this version of umpteen reads format "
            f"{SCHEMA_VERSION}, so install a newer one"
        )
    if application != APPLICATION_ID or {sql for (sql,) in found} != set(TABLES):
        raise BadStore("its tables are not those of a store of changes")
    return True


def read_header(connection: sqlite3.Connection) -> Header:
    """Read the header row.

    Raises:
        BadStore: If it is missing or damaged.
    """
    row = connection.execute(
        "SELECT id, fingerprint, revision, n_labels, n_retirements, n_examples, crc FROM store"
    ).fetchone()
    if row is None:
        raise BadStore("its header row is missing")
    header = Header(*row[:-1])
    counts = row[2:-1]
    if row[-1] != header.crc or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise BadStore("its header row fails its checksum")
    return header


def label_crc(seq: int, revision: int, label_id: str, text: str, content: str) -> int:
    """Return the checksum of a row of ``labels``."""
    fields = f"{seq},{revision},{len(label_id)},{len(text)},{label_id}{text}{content}"
    return zlib.crc32(fields.encode("utf-8", "surrogatepass"))


def retirement_crc(row: int, revision: int, retired: int) -> int:
    """Return the checksum of a row of ``retirements``."""
    return zlib.crc32(b"%d,%d,%d" % (row, revision, retired))


def example_crc(seq: int, revision: int, digest: bytes, label_rows: bytes) -> int:
    """Return the checksum of a row of ``examples``; the digest checks the text."""
    return zlib.crc32(b"%d,%d,%b,%b" % (seq, revision, digest, label_rows))


def change_crc(revision: int, kind: str, count: int, touched: bytes) -> int:
    """Return the checksum of a row of ``changes``; time and person are not part of it."""
    return zlib.crc32(b"%d,%b,%d,%b" % (revision, kind.encode(), count, touched))
