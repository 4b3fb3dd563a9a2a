"""Read a store whose first page is lost: the first page of any other store fits it.

The first page holds the file header and the table definitions. Stores are created by the same
statements in the same order, so their tables begin on the same pages.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from umpteen.store.schema import Header, create_tables

PAGE = 4096


@contextlib.contextmanager
def graft_first_page(path: Path) -> Iterator[Path]:
    """Copy a damaged store to a temporary folder and give it the first page of a new store.

    Args:
        path: The damaged file.

    Yields:
        The folder with the copy, under the same name.
    """
    with tempfile.TemporaryDirectory(prefix="umpteen-repair-") as name:
        copy = Path(name) / path.name
        fresh = Path(name) / "fresh.sqlite"
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("BEGIN")
            create_tables(connection, Header("", ""))
            connection.execute("COMMIT")
        shutil.copy2(path, copy)
        n_pages = copy.stat().st_size // PAGE
        first = bytearray(fresh.read_bytes()[:PAGE])
        first[28:32] = n_pages.to_bytes(4, "big")  # size of the file in pages
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists() and wal.stat().st_size:
            shutil.copy2(wal, copy.with_name(wal.name))
            first[18:20] = b"\2\2"  # the file is in WAL mode, so the WAL is read too
        if n_pages:
            with copy.open("r+b") as handle:
                handle.write(first)
                handle.truncate(n_pages * PAGE)
        yield Path(name)
