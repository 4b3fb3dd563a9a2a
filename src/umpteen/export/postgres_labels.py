"""``--to pgvector``: labels and their vectors as a table of Postgres with the extension vector."""

from __future__ import annotations

import re
from typing import Any

from umpteen.errors import ConfigError, UmpteenError, first_line
from umpteen.export.label_rows import LabelTable, require_own
from umpteen.extras import require
from umpteen.predictor import Predictor

MAX_INDEXED = 2000
"""Dimensions that an HNSW index of pgvector takes."""


def export(predictor: Predictor, out: str, *, head: str = "dual", table: str = "labels") -> str:
    """Write labels into a Postgres table, in one transaction; a table of that name is replaced.

    Args:
        predictor: The model.
        out: A connection string, ``postgresql://user@host/database``.
        head: Whose vectors.
        table: Name of the table; columns id, text, count, vector, with an HNSW index.

    Raises:
        ConfigError: If the name of the table is none.
        UmpteenError: If Postgres cannot be reached or has no pgvector, or the table holds something
            else; nothing is changed then.
        MissingExtra: If psycopg is not installed.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,59}", table):
        raise ConfigError(
            f"{table!r} cannot be the name of a table; use small letters, digits and _"
        )
    psycopg: Any = require("psycopg", extra="pgvector")
    labels = LabelTable(predictor, head)
    try:
        with psycopg.connect(out) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            cursor.execute("SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) "
                           "AND attnum > 0 AND NOT attisdropped", (table,))  # fmt: skip
            require_own([name for (name,) in cursor.fetchall()], f"the table {table}")
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            cursor.execute(
                f"CREATE TABLE {table} (id text PRIMARY KEY, text text NOT NULL, "
                f"count bigint NOT NULL, vector vector({labels.dim}) NOT NULL)"
            )
            with cursor.copy(f"COPY {table} (id, text, count, vector) FROM STDIN") as copy:
                for rows in labels.batches():
                    for label_id, text, count, vector in zip(
                        rows.ids, rows.texts, rows.counts, rows.vectors.tolist(), strict=True
                    ):
                        copy.write_row((_plain(label_id), _plain(text), count, str(vector)))
            kind = "vector_cosine_ops" if labels.normalized else "vector_ip_ops"
            if labels.dim <= MAX_INDEXED:
                cursor.execute(f"CREATE INDEX ON {table} USING hnsw (vector {kind})")
    except psycopg.Error as error:
        reason = first_line(error)
        raise UmpteenError(f"Postgres did not take the labels: {reason}") from error
    return f"{labels.describe()}, in the table {table}"


def _plain(text: str) -> str:
    """Return a text that Postgres stores: without the character 0."""
    return text.replace("\0", "")
