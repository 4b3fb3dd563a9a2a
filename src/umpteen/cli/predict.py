"""``umpteen predict``: a text per line in, a JSON line out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import click

from umpteen.cli._options import device_option, sentences

TEXTS_AT_ONCE = 1024


@click.command()
@click.argument("run")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="Labels per text.")
@click.option("--head", type=click.Choice(["de", "clf", "combined"]), help="By default the best.")
@click.option("--threshold", type=float, metavar="X", help="Leave out labels scored below X.")
@device_option
@sentences
def predict(
    run: str, file: IO[str], k: int, head: str | None, threshold: float | None, device: str
) -> None:
    """Labels for each line of FILE (or of standard input), one JSON line each.

    A line is a text, or a JSON object with a "text" field. Output:
    {"text": .., "labels": [{"id": .., "text": .., "score": ..}]}.
    """
    from umpteen.predictor import Predictor

    predictor = Predictor.load(run, device=device)
    lines = _texts(file)
    while batch := list(islice(lines, TEXTS_AT_ONCE)):
        top = predictor.predict(batch, k, head=head)
        for text, ids, names, scores in zip(
            batch, top.ids, top.texts, top.scores.tolist(), strict=True
        ):
            labels: list[dict[str, Any]] = [
                {"id": i, "text": name, "score": round(score, 6)}
                for i, name, score in zip(ids, names, scores, strict=False)
                if threshold is None or score >= threshold
            ]
            click.echo(json.dumps({"text": text, "labels": labels}, ensure_ascii=False))


def _texts(file: IO[str]) -> Iterator[str]:
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
            if not isinstance(value, dict) or not isinstance(value.get("text"), str):
                raise DataError('expected a "text" field with a string', path=name, line=number)
            yield value["text"]
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error}", path=name, line=number + 1) from error
