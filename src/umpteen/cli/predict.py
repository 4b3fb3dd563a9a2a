"""``umpteen predict``: a file of texts in, one record for each text out."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import (
    ALL_HEADS,
    backend_option,
    budget_option,
    device_option,
    log,
    sentences,
    without_option,
    write_records,
)
from umpteen.cli._table_options import input_options, rows_format_option
from umpteen.display import counted

if TYPE_CHECKING:
    from umpteen.data.formats.row_batches import RowReader
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.prediction_records import PredictOptions
    from umpteen.predictor import Predictor

TEXTS_AT_ONCE = 1024
PROGRESS_SECONDS = 5.0


@click.command()
@click.argument("run")
@click.argument("file", default="-")
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
@click.option(
    "--explain",
    is_flag=True,
    help="Show each scorer's own score, and its contribution: what it adds to the score of the "
    "label, compared with the average candidate of the text.",
)
@click.option(
    "--out",
    metavar="FILE",
    help="Write to this file instead of standard output; a file that is there is replaced.",
)
@click.option(
    "--to",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    help="The format to write; by default that of the ending of --out, or jsonl.",
)
@click.option("--resume", is_flag=True, help="Continue a file that was not finished.")
@budget_option
@backend_option
@device_option
@rows_format_option
@sentences
@input_options
def predict(
    run: str,
    file: str,
    k: int | None,
    head: str | None,
    threshold: float | str | None,
    without: tuple[str, ...],
    explain: bool,
    out: str | None,
    to: str | None,
    resume: bool,
    budget_ms: float | None,
    backend: str,
    device: str,
    data_format: str | None,
    table: TableOptions,
) -> None:
    """Predict labels for each text of FILE (or of standard input).

    FILE is csv, tsv, parquet, jsonl, a JSON array, fastText, or plain lines. Columns used in
    training are used here too; ids and other columns are kept, and the text that was read is called
    "text" whatever its column is called. Output: {"id": .., "text": .., "labels": [{"id": ..,
    "text": .., "score": ..}], other columns}. Scores of the ensemble are probabilities. A "note"
    gives the reason where no label is probable. A column of FILE that is called like one of the
    output gets "input_" in front.

    With --out, rows are safe on disk batch by batch; --resume at the end of the same command
    continues after a kill, without a row lost or written twice.
    """
    from umpteen.data.record_output import output_format
    from umpteen.prediction_records import PredictOptions
    from umpteen.predictor import Predictor

    if resume and out is None:
        raise click.UsageError("--resume needs --out FILE.")
    if file != "-" and not Path(file).exists():
        raise click.UsageError(
            f"{file} does not exist; expected a file of texts. For one text: "
            f"echo {shlex.quote(file)} | umpteen predict RUN"
        )
    written = output_format(out, to)
    if out is not None:
        _check_out(Path(out), file)
    if explain and written != "jsonl":
        raise click.UsageError(f"--explain is written as jsonl, not {written}.")
    k = (10 if threshold is None else 20) if k is None else k
    options = PredictOptions(k, head, threshold, explain, without)
    predictor = Predictor.load(run, device=device, backend=backend)
    predictor.check_threshold(threshold, head)
    if budget_ms is not None:
        log(f"Re-ranking {counted(predictor.limit_reranking(budget_ms), 'candidate')} of a text")
    if file == "-" and sys.stdin.isatty():
        log("Reading texts from the terminal, one a line; end with Ctrl-D")
    reader = open_texts(predictor, file, table, data_format)
    if out is None:
        _write_stream(predictor, reader, options, written)
    else:
        _write_file(predictor, reader, options, written, Path(out), resume=resume)


def _check_out(out: Path, file: str) -> None:
    """Raise, before anything is predicted, if FILE cannot be written or is what is read."""
    from umpteen.errors import ConfigError
    from umpteen.files import require_writable

    require_writable(out)
    if file != "-" and out.exists() and out.samefile(file):
        raise ConfigError(f"--out {out} is the file of the texts; name another file")


def open_texts(
    predictor: Predictor, file: str, table: TableOptions, data_format: str | None
) -> RowReader | None:
    """Open a file of texts as training read its own; None where it is empty."""
    from umpteen.data.formats.recognise import peek
    from umpteen.data.formats.row_batches import open_rows
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.errors import DataError
    from umpteen.run_folder import RunFolder

    if not Path(file).is_dir() and not peek(Path(file)):
        return None
    trained = RunFolder(predictor.folder or ".").read_columns()
    if table.given() or not any(trained.get(name) for name in ("text_columns", "id_column")):
        reader = open_rows(file, table, format=data_format)
    else:
        same = TableOptions(trained.get("text_columns") or (), id_column=trained.get("id_column"))
        try:
            reader = open_rows(file, same, format=data_format)
        except DataError:  # another file than those of training, with columns of its own
            reader = open_rows(file, table, format=data_format)
    if reader.note:
        log(reader.note)
    return reader


def _write_stream(
    predictor: Predictor, reader: RowReader | None, options: PredictOptions, to: str
) -> None:
    from umpteen.data.record_output import RecordLines, separator_for
    from umpteen.prediction_records import predict_records, record_columns

    if reader is None:
        return
    lines = RecordLines(to, record_columns(reader), separator_for(predictor.labels.ids))
    write_records(lines.header())
    for records in _shown(predict_records(predictor, reader, options, size=TEXTS_AT_ONCE)):
        write_records(lines.lines(records))


def _write_file(
    predictor: Predictor,
    reader: RowReader | None,
    options: PredictOptions,
    to: str,
    path: Path,
    *,
    resume: bool,
) -> None:
    from umpteen.data.record_output import RecordFile, RecordLines, separator_for
    from umpteen.files import disk_errors
    from umpteen.prediction_records import predict_records, record_columns

    columns = ["text", "labels", "scores", "note"] if reader is None else record_columns(reader)
    lines = RecordLines("jsonl" if to == "parquet" else to, columns,
                        separator_for(predictor.labels.ids))  # fmt: skip
    replaced = path.is_file() and not resume
    file = RecordFile(path, to, lines, _key(predictor, reader, options, to), resume=resume)
    if file.complete:
        log(
            f"{path} is there, and no part of it is left to continue; leave --resume out to "
            "predict again"
        )
        return
    if file.rows:
        log(f"Continuing after {counted(file.rows, 'row')}")
    again = disk_errors(path, advice="repeat the command with --resume at its end")
    with again, contextlib.closing(file):
        if reader is not None:
            found = predict_records(predictor, reader, options, start=file.rows, size=TEXTS_AT_ONCE)
            for records in _shown(found, file.rows):
                file.append(records)
        file.finish()
    note = ", which replaced the file that was there" if replaced else ""
    log(f"Wrote {counted(file.rows, 'row')} to {path}{note}")


def _key(
    predictor: Predictor, reader: RowReader | None, options: PredictOptions, to: str
) -> dict[str, Any]:
    """Return what the rows of a file depend on, as JSON values."""
    path = None if reader is None else reader.path
    about = path.stat() if path is not None and path.is_file() else None
    asked = {**asdict(options), "without": list(options.without)}
    return {
        "run": str(predictor.folder),
        "revision": 0 if predictor.store is None else predictor.store.revision,
        "file": str(path) if about is None or path is None else str(path.resolve()),
        "size of the file": None if about is None else about.st_size,
        "time of the file": None if about is None else about.st_mtime_ns,
        "format": to,
        "columns": None if reader is None else reader.others,
        **asked,
    }


def _shown(batches: Iterable[list[Any]], done: int = 0) -> Iterator[list[Any]]:
    """Pass batches through and log their number every few seconds."""
    started = said = time.monotonic()
    first = done
    for batch in batches:
        yield batch
        done += len(batch)
        now = time.monotonic()
        if now - said >= PROGRESS_SECONDS:
            said = now
            log(f"{done:,} texts, {(done - first) / (now - started):,.0f} a second")


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
