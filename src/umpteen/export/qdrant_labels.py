"""``--to qdrant``: labels and their vectors as a collection of Qdrant, a server or a folder."""

from __future__ import annotations

from typing import Any

from umpteen.export.label_rows import LabelTable
from umpteen.extras import require
from umpteen.predictor import Predictor


def export(predictor: Predictor, out: str, *, head: str = "dual", table: str = "labels") -> str:
    """Write labels into a Qdrant collection; a collection of that name is replaced.

    Args:
        predictor: The model.
        out: The address of a server (``http://...``), or a folder for the client's local mode.
        head: Whose vectors.
        table: Name of the collection; the payload has id, text and count.

    Returns:
        What was written, in words.

    Raises:
        MissingExtra: If qdrant-client is not installed.
    """
    qdrant: Any = require("qdrant_client", extra="qdrant")
    models = qdrant.models
    labels = LabelTable(predictor, head)
    place = {"url": out} if out.startswith(("http://", "https://")) else {"path": out}
    client = qdrant.QdrantClient(**place)
    try:
        if client.collection_exists(table):
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
    finally:
        client.close()
    return f"{labels.describe()}, in the collection {table}"
