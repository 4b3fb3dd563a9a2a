"""``--to parquet``: labels and their vectors as one parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from umpteen.export.label_rows import LabelRows, LabelTable
from umpteen.extras import require
from umpteen.files import atomic_file
from umpteen.predictor import Predictor


def export(predictor: Predictor, out: str, *, head: str = "dual") -> str:
    """Write labels as a parquet file: id, text, count and vector (a list of fixed size).

    Args:
        predictor: The model.
        out: The file; it is replaced if it exists.
        head: Whose vectors.

    Returns:
        What was written, in words.

    Raises:
        MissingExtra: If pyarrow is not installed.
    """
    arrow = require("pyarrow", extra="parquet")
    parquet = require("pyarrow.parquet", extra="parquet")
    table = LabelTable(predictor, head)
    schema = arrow_schema(arrow, table.dim)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for rows in table.batches():
            writer.write_batch(arrow_batch(arrow, rows, schema))
    return table.describe()


def arrow_schema(arrow: Any, dim: int) -> Any:
    """Return the Arrow schema of exported labels."""
    return arrow.schema(
        [
            ("id", arrow.string()),
            ("text", arrow.string()),
            ("count", arrow.int64()),
            ("vector", arrow.list_(arrow.float32(), dim)),
        ]
    )


def arrow_batch(arrow: Any, rows: LabelRows, schema: Any) -> Any:
    """Return some labels as an Arrow record batch."""
    flat = arrow.array(rows.vectors.reshape(-1))
    vectors = arrow.FixedSizeListArray.from_arrays(flat, rows.vectors.shape[1])
    columns = [arrow.array(rows.ids), arrow.array(rows.texts), arrow.array(rows.counts), vectors]
    return arrow.record_batch(columns, schema=schema)
