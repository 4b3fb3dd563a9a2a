"""``umpteen examples``: add labelled texts to a run without training, and list them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click

from umpteen.cli._options import json_option, log, sentences, write_json, write_table
from umpteen.cli.labels import open_store, read_json_lines
from umpteen.display import counted

PAGE = 50
SHOWN_CHARACTERS = 60
TABLES = (".csv", ".tsv", ".parquet")


@click.group()
def examples() -> None:
    """Add labelled texts to a run without training, and list them.

    From the next prediction on, the same text has these labels, and they rise for similar texts.
    """


@examples.command()
@click.argument("run")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@click.option("--text", help="Add one text instead of FILE.")
@click.option("--label", "ids", multiple=True, help="Id of a label of --text; may be repeated.")
@json_option
@sentences
def add(run: str, file: IO[str], text: str | None, ids: tuple[str, ...], as_json: bool) -> None:
    """Add the examples of FILE to RUN; each line is {"text": .., "labels": [ids]}.

    A FILE that ends in .csv, .tsv or .parquet is read like training data. A text that is there
    already gets the new labels. If one line is wrong, nothing is added.
    """
    if (text is None) != (not ids):
        raise click.UsageError("give --text and at least one --label, or neither")
    store = open_store(run)
    if text is None:
        pairs = _read_file(file, store.labels.ids)
    else:
        pairs = [{"text": text, "labels": list(ids)}]
    texts, labels = [p["text"] for p in pairs], [p["labels"] for p in pairs]
    count = store.add_examples(texts, labels, who="cli")
    total = len(store.state().examples)
    if as_json:
        write_json({"added": count, "total": total, "revision": store.revision})
    else:
        log(f"added {counted(count, 'example')}; the run has {total}")


@examples.command("list")
@click.argument("run")
@click.option("--offset", default=0, show_default=True, type=click.IntRange(0))
@click.option("--limit", default=PAGE, show_default=True, type=click.IntRange(1))
@json_option
@sentences
def list_(run: str, offset: int, limit: int, as_json: bool) -> None:
    """List the examples of RUN, in the order they were first added."""
    store = open_store(run)
    state = store.state()
    total = len(state.examples)
    places = range(min(offset, total), min(offset + limit, total))
    texts = store.example_texts(state.examples.digests[places.start : places.stop])
    shown = [
        {"text": text, "labels": state.example_label_ids(place),
         "revision": state.examples.revisions[place]}
        for place, text in zip(places, texts, strict=True)
    ]  # fmt: skip
    if as_json:
        write_json({"examples": shown, "total": total})
        return
    write_table(
        ["text", "labels", "revision"],
        [[_shorten(e["text"]), ", ".join(e["labels"]), e["revision"]] for e in shown],
    )
    if total > len(shown):
        log(f"{len(shown)} of {total} examples; more with --limit and --offset")


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _read_file(file: IO[str], known: Sequence[str]) -> list[dict[str, Any]]:
    name = getattr(file, "name", "-")
    if Path(name).suffix.lower() in TABLES:
        return _read_table(name, known)
    return list(read_json_lines(file, _example))


def _read_table(name: str, known: Sequence[str]) -> list[dict[str, Any]]:
    """Read a table with the columns of training data."""
    from umpteen.cli._table_options import read_data
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.store.checks import check_examples

    data = read_data(name, None, TableOptions().with_known(known))
    split, ids = next(iter(data.splits.values())), data.labels.ids
    rows, texts = split.targets.tolil().rows, split.texts()
    pairs: list[dict[str, Any]] = [
        {"text": text, "labels": [ids[row] for row in own]}
        for text, own in zip(texts, rows, strict=True)
    ]
    check_examples([pair["text"] for pair in pairs], [pair["labels"] for pair in pairs])
    return pairs


def _example(line: str) -> dict[str, Any]:
    from umpteen.errors import DataError
    from umpteen.store.checks import check_examples

    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from None
    whole = isinstance(value, dict) and isinstance(value.get("text"), str)
    if not whole or not isinstance(value.get("labels"), list):
        raise DataError('expected {"text": "..", "labels": [ids]}')
    value["labels"] = [str(i) if isinstance(i, int) else i for i in value["labels"]]
    try:
        check_examples([value["text"]], [value["labels"]])
    except DataError as error:
        raise DataError(str(error).replace("example 1", "the example")) from None
    return value
