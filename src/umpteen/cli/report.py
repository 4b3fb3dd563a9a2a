"""``umpteen report``: options in, ``write_report`` called."""

from __future__ import annotations

import click

from umpteen.cli._options import device_option, format_option, log, sentences


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
def report(
    run: str,
    data_path: str | None,
    split: str | None,
    out: str | None,
    device: str,
    data_format: str | None,
) -> None:
    """Write one HTML page about RUN: curves, heads, bins head to tail, labels and examples.

    Without --data the heads are scored on the examples the run keeps, up to 1,000 of its
    validation queries. The page is one file that needs no network.
    """
    if data_path is None and (split or data_format):
        raise click.UsageError("--split and --format need --data.")
    from umpteen.report import write_report
    from umpteen.runs import RunFolder

    RunFolder(run).require()  # a misspelt run should not wait for the data
    data = None
    if data_path is not None:
        from umpteen.data.formats import load_dataset

        data = load_dataset(data_path, data_format)
    page = write_report(run, data=data, split=split or "test", out=out, device=device)
    log(f"Wrote {page}")
