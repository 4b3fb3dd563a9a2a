"""``umpteen start``: a run from label names alone."""

from __future__ import annotations

from typing import Any

import click

from umpteen.cli._options import device_option, log, sentences
from umpteen.display import counted


@click.command()
@click.argument("labels")
@click.option("--out", required=True, metavar="RUN", help="The run folder to make.")
@click.option(
    "--texts", metavar="FILE", help="Texts without labels: word frequencies are taken from them."
)
@click.option(
    "--encoder",
    metavar="NAME",
    help="A Hugging Face folder or hub name; static token vectors by default.",
)
@click.option(
    "--text",
    type=click.Choice(["title", "all"]),
    default="all",
    show_default=True,
    help="Read names only, or names and descriptions.",
)
@click.option("--language", metavar="CODE", help="Language of the names in a vocabulary, as en.")
@click.option("--check", metavar="DATA", help="Labelled data to measure the run on.")
@click.option(
    "--self-training/--no-self-training",
    default=None,
    help="Move label vectors towards the texts they are predicted for. By default it is tried "
    "with --texts and --check, and kept if P@1 rises.",
)
@device_option
@sentences
def start(labels: str, texts: str | None, out: str, **options: Any) -> None:
    """Make a run from LABELS alone, without labelled texts.

    LABELS is a file with one name per line; a csv, tsv, parquet or JSON lines file with names, ids
    and descriptions; a vocabulary (SKOS, or Annif's TSV or CSV); or a data folder. The run predicts
    at once. Correct it with umpteen examples add or on the page of umpteen serve; train it later
    with umpteen train DATA --from RUN.
    """
    from umpteen.training.start import start as make

    model = make(labels, texts, out=out, log=log, **options)
    log(
        f"The run with {counted(len(model.labels), 'label')} is in {out}. Next: umpteen serve {out}"
    )
