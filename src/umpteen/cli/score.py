"""``umpteen score``: metrics of predictions from any source. Parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from umpteen.cli._options import (
    format_option,
    json_option,
    log,
    sentences,
    write_json,
    write_lines,
    write_table,
)
from umpteen.cli._table_options import read_data, table_options
from umpteen.display import counted

if TYPE_CHECKING:
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.scoring import Report


def _constants(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        a, b = (float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"got {text!r}; write two numbers, such as 0.55,1.5") from None
    return a, b


@click.command()
@click.argument("predictions", metavar="PREDICTIONS")
@click.argument("data_path", metavar="DATA")
@click.option(
    "--split", type=click.Choice(["train", "validation", "test"]), default="test", show_default=True
)
@click.option("--metrics", metavar="P@1,...", help="What to compute, with commas between.")
@click.option(
    "--propensity",
    metavar="A,B",
    callback=_constants,
    help="Constants of propensity-scored metrics, if not the data's own.",
)
@format_option
@json_option
@sentences
@table_options
def score(
    predictions: str,
    data_path: str,
    split: str,
    metrics: str | None,
    propensity: tuple[float, float] | None,
    data_format: str | None,
    as_json: bool,
    table: TableOptions,
) -> None:
    """Compute metrics of PREDICTIONS on a split of DATA, or on DATA if it is one file.

    PREDICTIONS has one JSON line per text, {"labels": [ids, best first]}, plain or gzip, or -
    for stdin; or it is a csv, tsv or parquet file with a column labels. What `umpteen predict`
    writes is fine. An id that is not in the data counts as a miss. Label frequencies, for PSP, are
    those of DATA's training texts, or of its only texts.
    """
    from umpteen import scoring
    from umpteen.data.csr import column_counts
    from umpteen.data.dataset import Propensity
    from umpteen.metrics import parse_all

    names = (
        scoring.DEFAULT_METRICS
        if metrics is None
        else [name for name in metrics.split(",") if name]
    )
    parse_all(names)  # a misspelt metric should not wait for the data
    data = read_data(data_path, data_format, table)
    truth = data.part(split)
    trained = data.splits.get("train", truth)
    name = "standard input" if predictions == "-" else predictions
    lines = None if predictions == "-" else scoring.table_lines(Path(predictions), data.labels)
    with lines or click.open_file(predictions, "rb") as handle:
        topk, unknown = scoring.read_predictions(handle, data.labels, len(truth), name=name)
    constants = data.propensity if propensity is None else Propensity(*propensity)
    report = scoring.score(
        topk,
        truth,
        label_counts=column_counts(trained.targets),
        n_train=len(trained),
        propensity=constants,
        metrics=names,
    )
    if unknown:
        log(f"{counted(unknown, 'predicted id')} not among the data's labels, counted as misses")
    if len(data.splits) == 1:
        log(f"{data_path} has one split, scored whole; label frequencies for PSP are its own")
    if as_json:
        write_json(report.as_json())
    else:
        _write_report(report, "" if len(data.splits) == 1 else f"{split} ")


def _write_report(report: Report, which: str) -> None:
    write_table(
        ["metric", "percent"],
        list(report.values.items()),
        title=f"{counted(report.n, f'{which}text')}, at most {report.width} predictions each",
    )
    bins = " + ".join(f"{share:.2f}" for share in report.bins)
    own = report.propensity
    write_lines(
        f"P@5 by label frequency, frequent to rare labels: {bins}",
        f"propensity constants of PSP: A {own.a:g}, B {own.b:g}",
        *([f"filter pairs left out: {report.n_filters:,}"] if report.n_filters else []),
        *(
            [f"texts without labels, counted as 0: {report.n_without_positives:,}"]
            if report.n_without_positives
            else []
        ),
        "predictions count in the order of each line; a missing place is a miss",
    )
