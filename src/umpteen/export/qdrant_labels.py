"""``--to qdrant``: labels and their vectors as a collection of Qdrant, a server or a folder."""

from __future__ import annotations

import os
from typing import Any

from umpteen.errors import UmpteenError, first_line
from umpteen.export.label_rows import LabelTable, require_own
from umpteen.extras import require
from umpteen.predictor import Predictor


def export(predictor: Predictor, out: str, *, head: str = "dual", table: str = "labels") -> str:
    """Write labels into a Qdrant collection; a collection of that name is replaced.

    Args:
        predictor: The model.
        out: The address of a server (``http://...``; its key is read from ``QDRANT_API_KEY``), or a
            folder for the client's local mode.
        head: Whose vectors.
        table: Name of the collection; the payload has id, text and count.

    Returns:
        What was written, in words.

    Raises:
        UmpteenError: If Qdrant cannot be reached or refuses the labels, or the collection holds
            something else.
        MissingExtra: If qdrant-client is not installed.
    """
    qdrant: Any = require("qdrant_client", extra="qdrant")
    labels = LabelTable(predictor, head)
    errors = require("qdrant_client.http.exceptions", extra="qdrant")
    try:
        client = qdrant.QdrantClient(**_place(out))
        try:
            _write(client, qdrant.models, labels, table)
        finally:
            client.close()
    except (errors.ApiException, OSError, RuntimeError) as error:
        raise UmpteenError(f"Qdrant did not take the labels: {first_line(error)}") from error
    return f"{labels.describe()}, in the collection {table}"


def _place(out: str) -> dict[str, Any]:
    """Return where the store is, as arguments of a client."""
    if not out.startswith(("http://", "https://")):
        return {"path": out}
    return {"url": out, "api_key": os.environ.get("QDRANT_API_KEY")}


def _write(client: Any, models: Any, labels: LabelTable, table: str) -> None:
    if client.collection_exists(table):
        points, _ = client.scroll(table, limit=1)
        own = set(points[0].payload or {}) if points else set()
        require_own([*own, "vector"] if own else [], f"the collection {table}")
        client.delete_collection(table)
    distance = models.Distance.COSINE if labels.normalized else models.Distance.DOT
    size = models.VectorParams(size=labels.dim, distance=distance)
    client.create_collection(table, vectors_config=size)
    for rows in labels.batches(512):
        payload = [
            {"id": label_id, "text": text, "count": count}
            for label_id, text, count in zip(rows.ids, rows.texts, rows.counts, strict=True)
        ]
        points = models.Batch(
            ids=list(range(rows.first, rows.first + len(rows))),
            vectors=rows.vectors.tolist(),
            payloads=payload,
        )
        client.upsert(table, points)
