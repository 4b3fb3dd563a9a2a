"""Predictions of the rows of a file as records: id, text, labels, and the other columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from umpteen.data.formats.row_batches import RowBatch, RowReader
from umpteen.predictor import Predictor
from umpteen.types import TopK

RESERVED = ("id", "text", "labels", "scores", "note")
RENAMED = "input_"
"""Before the name of a column of the file that is one of ours."""


@dataclass(frozen=True)
class PredictOptions:
    """What is asked of the model; see ``Predictor.predict``."""

    k: int = 10
    head: str | None = None
    threshold: float | str | None = None
    explain: bool = False
    without: tuple[str, ...] = ()


def predict_records(
    model: Predictor,
    reader: RowReader,
    options: PredictOptions,
    *,
    start: int = 0,
    size: int = 1024,
) -> Iterator[list[dict[str, Any]]]:
    """Yield a record for each row of a file, in batches and in order.

    Yields:
        Records: ``id`` where the file has one, ``text`` as the model reads it, ``labels``, a
        ``note`` where no label is probable, and the other columns as they are.
    """
    which = model.text_config.text
    for batch in reader.batches(size, start=start):
        texts = batch.texts(which)
        if reader.format == "lines":
            texts = [_of_line(text, which) for text in texts]
        top = model.predict(
            texts,
            min(options.k, max(1, model.snapshot().n_labels)),  # arrays have k columns
            head=options.head,
            threshold=options.threshold,
            explain=options.explain,
            without=options.without,
        )
        yield [_record(batch, texts, top, place) for place in range(len(batch))]


def record_columns(reader: RowReader) -> list[str]:
    """Return the columns of a table of records, in order."""
    own = ["id"] if reader.columns.id is not None else []
    return [*own, "text", "labels", "scores", "note", *map(renamed, reader.others)]


def renamed(name: str) -> str:
    """Return what a column of the file is called beside ours.

    Example:
        >>> renamed("price"), renamed("labels")
        ('price', 'input_labels')
    """
    return RENAMED + name if name in RESERVED else name


def label_records(top: TopK, place: int) -> list[dict[str, Any]]:
    """Return the labels of one text as JSON values."""
    assert top.labels is not None
    ids, texts = top.labels.ids, top.labels.texts
    shown = None if top.explanations is None else top.explanations[place]
    labels: list[dict[str, Any]] = []
    for row, score in zip(top.rows[place].tolist(), top.scores[place].tolist(), strict=True):
        if row < 0:
            break
        label = {"id": ids[row], "text": texts[row], "score": round(score, 6)}
        if shown is not None:
            label |= shown[len(labels)]
        labels.append(label)
    return labels


def _record(batch: RowBatch, texts: Sequence[str], top: TopK, place: int) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if batch.ids is not None:
        record["id"] = batch.ids[place]
    record |= {"text": texts[place], "labels": label_records(top, place)}
    note = top.notes[place] if top.notes is not None else None
    if note is not None:
        record["note"] = note
    return record | {renamed(name): values[place] for name, values in batch.columns.items()}


def _of_line(line: str, which: str) -> str:
    """Return the text of a JSON object among plain lines; any other line is a text."""
    if not line.startswith("{"):
        return line
    try:
        value = json.loads(line)
    except ValueError:
        return line
    text = value.get("text", value.get("title")) if isinstance(value, dict) else None
    if not isinstance(text, str):
        return line
    content = value.get("content")
    joined = which == "all" and isinstance(content, str) and "text" not in value
    return f"{text} {content}" if joined else text
