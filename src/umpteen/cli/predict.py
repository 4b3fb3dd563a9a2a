"""``umpteen predict``: a text per line in, a JSON line out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import click

from umpteen.cli._options import ALL_HEADS, device_option, sentences, without_option

if TYPE_CHECKING:
    from umpteen.types import TopK

TEXTS_AT_ONCE = 1024


@click.command()
@click.argument("run")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@click.option(
    "-k",
    default=None,
    type=click.IntRange(1),
    help="Labels per text: 10 by default; with --threshold the maximum, 20 by default.",
)
@click.option("--head", type=click.Choice(ALL_HEADS), help="By default the best.")
@click.option(
    "--threshold",
    metavar="auto|groups|X",
    callback=lambda *given: _number_or_word(*given),
    help="Leave out labels with a smaller probability. auto: best micro-F1 on validation; groups: "
    "the same for rare and frequent labels apart.",
)
@without_option
@click.option("--explain", is_flag=True, help="Show the scores and contributions of all scorers.")
@device_option
@sentences
def predict(
    run: str,
    file: IO[str],
    k: int | None,
    head: str | None,
    threshold: float | str | None,
    without: tuple[str, ...],
    explain: bool,
    device: str,
) -> None:
    """Predict labels for each line of FILE (or of standard input), one JSON line each.

    A line is a text, or a JSON object with a "text", or with a "title" and a "content". Fields used
    in training are used here too. Output: {"text": .., "labels": [{"id": .., "text": .., "score":
    ..}]}. Scores of the ensemble are probabilities. A "note" gives the reason where no label is
    probable.
    """
    from umpteen.predictor import Predictor

    predictor = Predictor.load(run, device=device)
    if k is None:
        k = 10 if threshold is None else 20
    lines = _texts(file, predictor.text_config.text)
    while batch := list(islice(lines, TEXTS_AT_ONCE)):
        top = predictor.predict(
            batch, k, head=head, threshold=threshold, explain=explain, without=without
        )
        for place, text in enumerate(batch):
            line: dict[str, Any] = {"text": text, "labels": _labels(top, place)}
            note = top.notes[place] if top.notes is not None else None
            if note is not None:
                line["note"] = note
            click.echo(json.dumps(line, ensure_ascii=False))


def _labels(top: TopK, place: int) -> list[dict[str, Any]]:
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


def _number_or_word(_: click.Context, __: click.Parameter, value: str | None) -> float | str | None:
    if value is None or value in ("auto", "groups"):
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise click.BadParameter(f"{value!r} is neither auto, groups nor a number")
    return number


def _texts(file: IO[str], which: str) -> Iterator[str]:
    from umpteen.errors import DataError

    name = getattr(file, "name", "-")
    number = 0
    try:
        for number, raw in enumerate(file, 1):
            line = raw.rstrip("\r\n")
            if not line.startswith("{"):
                yield line
                continue
            try:
                value = json.loads(line)
            except ValueError:
                yield line  # a text that happens to start with a brace
                continue
            yield _text_of(value, which, name, number)
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error}", path=name, line=number + 1) from error


def _text_of(value: Any, which: str, path: str, line: int) -> str:
    """Return what is read of a JSON object, as of a row of a data set."""
    from umpteen.data.labels import join_texts
    from umpteen.errors import DataError

    fields = value if isinstance(value, dict) else {}
    title, content = fields.get("text", fields.get("title")), fields.get("content", "")
    if not isinstance(title, str) or not isinstance(content, str):
        raise DataError(
            'expected a "text", or a "title" and a "content", each a string', path=path, line=line
        )
    return join_texts([title], None if "text" in fields else [content], which)[0]
