"""``umpteen predict``: a text per line in, a JSON line out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import click

from umpteen.cli._options import ALL_HEADS, device_option, sentences, without_option
from umpteen.head_names import ENSEMBLE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from umpteen.predictor import Predictor

TEXTS_AT_ONCE = 1024


@click.command()
@click.argument("run")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@click.option(
    "-k",
    default=None,
    type=click.IntRange(1),
    help="Labels per text, 10 by default; at most so many with --threshold, where it is 20.",
)
@click.option("--head", type=click.Choice(ALL_HEADS), help="By default the best.")
@click.option(
    "--threshold",
    metavar="auto|groups|X",
    callback=lambda *given: _number_or_word(*given),
    help="Leave out labels scored below X; auto: below what was best on validation, groups: "
    "below what was best for labels of the same frequency.",
)
@without_option
@click.option("--explain", is_flag=True, help="Say what each part says of every label.")
@device_option
@sentences
def predict(
    run: str,
    file: IO[str],
    k: int | None,
    head: str | None,
    threshold: str | None,
    without: tuple[str, ...],
    explain: bool,
    device: str,
) -> None:
    """Labels for each line of FILE (or of standard input), one JSON line each.

    A line is a text, or a JSON object with a "text" field, or a "title" and a "content", of which
    is read what training read. Output: {"text": .., "labels": [{"id": .., "text": .., "score":
    ..}]}. Scores of the head ensemble are probabilities.
    """
    import numpy as np

    from umpteen.errors import ConfigError
    from umpteen.predictor import Predictor

    predictor = Predictor.load(run, device=device)
    if explain and (head or predictor.heads[-1]) != ENSEMBLE:
        raise ConfigError(
            f"--explain tells of the head ensemble, the head is {head or predictor.heads[-1]}; "
            "leave out --head, or fit one with umpteen fit-ensemble"
        )
    if k is None:
        k = 10 if threshold is None else 20
    limits = _limits(predictor, head, threshold, without)
    lines = _texts(file, predictor.reading.text)
    while batch := list(islice(lines, TEXTS_AT_ONCE)):
        top = predictor.predict(batch, k, head=head, without=without)
        told = predictor.explain(batch, top, without=without) if explain else None
        kept = (top.rows >= 0) & (top.scores >= limits[np.minimum(top.rows, len(limits) - 1)])
        for place, (text, ids, names) in enumerate(zip(batch, top.ids, top.texts, strict=True)):
            labels: list[dict[str, Any]] = []
            for rank, (label_id, name) in enumerate(zip(ids, names, strict=True)):
                if not kept[place, rank]:
                    continue
                score = round(float(top.scores[place, rank]), 6)
                label = {"id": label_id, "text": name, "score": score}
                labels.append({**label, **told[place][rank]} if told else label)
            click.echo(json.dumps({"text": text, "labels": labels}, ensure_ascii=False))


def _limits(
    predictor: Predictor, head: str | None, threshold: str | None, without: tuple[str, ...]
) -> NDArray[np.float64]:
    """(L + 1,) the least score of each trained label, and last of those added since."""
    import numpy as np

    from umpteen.answers.calibration import thresholds_of_labels
    from umpteen.errors import ConfigError

    n = len(predictor.labels)
    if threshold is None:
        return np.full(n + 1, -np.inf)
    ensemble = predictor.ensemble if (head or predictor.heads[-1]) == ENSEMBLE else None
    if threshold not in ("auto", "groups"):
        if ensemble is not None and not 0 <= float(threshold) <= 1:
            raise ConfigError(
                f"--threshold {threshold}: scores of the head ensemble are probabilities; "
                "give a number from 0 to 1"
            )
        return np.full(n + 1, float(threshold))
    if ensemble is None:
        raise ConfigError(
            f"--threshold {threshold} needs the head ensemble, whose scores are probabilities; "
            "fit it with umpteen fit-ensemble, or give a number"
        )
    calibration = ensemble.recipe.way(without).calibration
    limits = np.full(n + 1, calibration.threshold)
    if threshold == "groups":
        limits[:n] = thresholds_of_labels(calibration, ensemble.label_counts)
    return limits


def _number_or_word(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None or value in ("auto", "groups"):
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise click.BadParameter(f"{value!r} is neither auto, groups nor a number")
    return str(number)


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
    """What is read of a JSON object, as of a row of a data set."""
    from umpteen.data.labels import join_texts
    from umpteen.errors import DataError

    fields = value if isinstance(value, dict) else {}
    title, content = fields.get("text", fields.get("title")), fields.get("content", "")
    if not isinstance(title, str) or not isinstance(content, str):
        raise DataError(
            'expected a "text", or a "title" and a "content", each a string', path=path, line=line
        )
    return join_texts([title], None if "text" in fields else [content], which)[0]
