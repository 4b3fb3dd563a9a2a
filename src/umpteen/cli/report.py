"""``umpteen report``: options in, ``write_report`` called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from umpteen.cli._options import device_option, format_option, log, sentences
from umpteen.cli._table_options import read_data, table_options

if TYPE_CHECKING:
    from umpteen.data.formats.table_options import TableOptions


@click.command()
@click.argument("run")
@click.option("--data", "data_path", metavar="DATA", help="Evaluate on this data as well.")
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    help="Which part of DATA; test by default.",
)
@click.option("--out", metavar="FILE", help="The page; RUN/report.html by default.")
@device_option
@format_option
@sentences
@table_options
def report(
    run: str,
    data_path: str | None,
    split: str | None,
    out: str | None,
    device: str,
    data_format: str | None,
    table: TableOptions,
) -> None:
    """Write one HTML page about RUN: curves, heads, bins head to tail, labels and examples.

    Without --data the heads are scored on the examples the run keeps, up to 1,000 of its
    validation queries. The page is one file that needs no network.
    """
    if data_path is None and (split or data_format or table.given()):
        raise click.UsageError("--split, --format and the options of tables need --data.")
    from umpteen.report import write_report
    from umpteen.run_folder import RunFolder

    RunFolder(run).require()  # a misspelt run should not wait for the data
    data = None if data_path is None else read_data(data_path, data_format, table)
    page = write_report(run, data=data, split=split or "test", out=out, device=device)
    log(f"Wrote {page}")
