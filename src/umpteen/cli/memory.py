"""``umpteen memory``: pairs of text and labels that count at once, without training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import click

from umpteen.cli._options import (
    device_option,
    json_option,
    say,
    sentences,
    write_json,
    write_table,
)

PAIRS_AT_ONCE = 4096


@click.group()
def memory() -> None:
    """What a run remembers of queries and their labels."""


@memory.command()
@click.argument("run")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@device_option
@json_option
@sentences
def add(run: str, file: IO[str], device: str, as_json: bool) -> None:
    """Remember the pairs of FILE: {"text": .., "labels": [ids]} on each line.

    Near texts get these labels from the next prediction on, in every process that answers with
    RUN, unless its ensemble was chosen without votes; a text that is asked word for word gets
    them first. A text that is added again replaces
    what was remembered of it. A file with a wrong line changes nothing.
    """
    from umpteen.predictor import Predictor

    predictor = Predictor.load(run, device=device)
    # All lines are read before the first is kept: the whole file, or nothing.
    pairs = list(_pairs(file))
    predictor.require_memory().check([p["text"] for p in pairs], [p["labels"] for p in pairs])
    lines = iter(pairs)
    count = 0
    while some := list(islice(lines, PAIRS_AT_ONCE)):
        count += predictor.remember([p["text"] for p in some], [p["labels"] for p in some])
    _tell(predictor, as_json, added=count)


@memory.command()
@click.argument("run")
@json_option
@sentences
def info(run: str, as_json: bool) -> None:
    """How much RUN remembers."""
    from umpteen.predictor import Predictor

    _tell(Predictor.load(run, device="cpu"), as_json)


def _tell(predictor: Any, as_json: bool, **more: int) -> None:
    remembered = predictor.require_memory()
    parts = predictor.ensemble.recipe.way().parts
    if "votes" not in parts:
        say(
            f"the ensemble of this run was chosen without votes ({', '.join(parts)}): a text "
            "asked word for word gets its labels, near texts do not"
        )
    facts = {
        **more,
        "trained": len(remembered.memory),
        "added_in_all": len(remembered.refresh().texts),
        "bytes": remembered.memory.n_bytes,
    }
    if as_json:
        write_json(facts)
    else:
        write_table(["", "count"], [[name.replace("_", " "), n] for name, n in facts.items()])


def _pairs(file: IO[str]) -> Iterator[dict[str, Any]]:
    from umpteen.errors import DataError

    name = getattr(file, "name", "-")
    number = 0
    try:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise DataError(f"not JSON: {error}", path=name, line=number) from None
            whole = isinstance(value, dict) and isinstance(value.get("text"), str)
            if not whole or not isinstance(value.get("labels"), list):
                raise DataError('expected {"text": "..", "labels": [ids]}', path=name, line=number)
            yield value
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error}", path=name, line=number + 1) from error
