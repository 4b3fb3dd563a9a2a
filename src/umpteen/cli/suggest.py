"""``umpteen suggest``: which texts to label next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import device_option, log, sentences, write_records
from umpteen.cli._table_options import input_options, rows_format_option
from umpteen.cli.predict import open_texts
from umpteen.display import counted

if TYPE_CHECKING:
    from umpteen.data.formats.row_batches import RowReader
    from umpteen.data.formats.table_options import TableOptions


@click.command()
@click.argument("run")
@click.argument("file", metavar="TEXTS", type=click.Path(exists=True, allow_dash=True), default="-")
@click.option("-n", default=20, show_default=True, type=click.IntRange(1), help="How many texts.")
@click.option("--out", metavar="FILE", help="Write to this file instead of standard output.")
@device_option
@rows_format_option
@sentences
@input_options
def suggest(
    run: str,
    file: str,
    n: int,
    out: str | None,
    device: str,
    data_format: str | None,
    table: TableOptions,
) -> None:
    """Choose the TEXTS to label next, the most useful first.

    Prints one JSON line for each: "labels" are the labels predicted now, to be corrected,
    "candidates" more labels with their probabilities, "gain" the expected number of wrong and
    missing labels that a correction may remove, in the text and in similar ones. Correct the
    labels and add the file with umpteen examples add RUN FILE.
    """
    from umpteen.data.record_output import RecordLines
    from umpteen.files import atomic_file, require_writable
    from umpteen.predictor import Predictor
    from umpteen.suggestions import suggest as choose

    if out is not None:
        require_writable(Path(out))
    predictor = Predictor.load(run, device=device)
    reader = open_texts(predictor, file, table, data_format)
    read = _Read(reader, predictor.text_config.text)
    found = choose(predictor, read.texts(), n)
    records = [{**read.about(each.position), **each.as_json()} for each in found]
    lines = RecordLines("jsonl", []).lines(records)
    if out is None:
        write_records(lines)
    else:
        with atomic_file(Path(out)) as temporary:
            temporary.write_text(lines, encoding="utf-8")
    empty = f"; {counted(read.empty, 'empty text')} left out" if read.empty else ""
    log(f"{counted(len(records), 'text')} of {read.count:,} to label next{empty}")


class _Read:
    """The texts of a file, and the ids of its rows."""

    def __init__(self, reader: RowReader | None, which: str) -> None:
        self._reader = reader
        self._which = which
        self._ids: list[str] = []
        self.count = self.empty = 0

    def texts(self) -> Iterator[str]:
        """Yield all texts."""
        batches = () if self._reader is None else self._reader.batches()
        return chain.from_iterable(map(self._note, batches))

    def about(self, position: int) -> dict[str, Any]:
        """Return the id of a row, where the file has ids."""
        return {"id": self._ids[position]} if self._ids else {}

    def _note(self, batch: Any) -> list[str]:
        self._ids += batch.ids or ()
        self.count += len(batch)
        texts: list[str] = batch.texts(self._which)
        self.empty += sum(not text.strip() for text in texts)
        return texts
