"""``--to lancedb``: labels and their vectors as a table of a LanceDB folder."""

from __future__ import annotations

import contextlib

from umpteen.export.label_rows import LabelTable, require_own
from umpteen.export.parquet_labels import arrow_batch, arrow_schema
from umpteen.extras import require
from umpteen.predictor import Predictor


def export(predictor: Predictor, out: str, *, head: str = "dual", table: str = "labels") -> str:
    """Write labels into a LanceDB table; a table of that name is replaced.

    Args:
        predictor: The model.
        out: The folder of the database.
        head: Whose vectors.
        table: Name of the table; columns id, text, count, vector.

    Returns:
        What was written, in words.

    Raises:
        UmpteenError: If the table holds something else.
        MissingExtra: If lancedb is not installed.
    """
    lancedb = require("lancedb", extra="lancedb")
    arrow = require("pyarrow", extra="parquet")
    labels = LabelTable(predictor, head)
    schema = arrow_schema(arrow, labels.dim)
    batches = (arrow_batch(arrow, rows, schema) for rows in labels.batches())
    reader = arrow.RecordBatchReader.from_batches(schema, batches)
    store = lancedb.connect(out)
    with contextlib.suppress(ValueError, FileNotFoundError):  # there is no such table
        require_own(store.open_table(table).schema.names, f"the table {table}")
    store.create_table(table, reader, mode="overwrite")
    return f"{labels.describe()}, in the table {table}"
