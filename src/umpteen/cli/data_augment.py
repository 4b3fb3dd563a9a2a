"""``umpteen data augment``: a data set with label texts among its training queries. Only words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import format_option, log, sentences
from umpteen.cli._table_options import read_data, table_options
from umpteen.data.augment import SUMMARIES
from umpteen.errors import ConfigError

if TYPE_CHECKING:
    from umpteen.data.formats.table_options import TableOptions

WRITTEN = (*SUMMARIES, "synonyms")

# \b keeps click from filling the list into a paragraph.
HELP = "\n".join(
    [
        "Write DATA into the new folder OUT with label texts as further training queries.\n",
        "Targets come from DATA's train split. Where DATA has no validation split, one is held out",
        "first, as umpteen train would. Measure on DATA, not on OUT: label frequencies and",
        "propensities belong to the data before augmentation. To train, the setting",
        "augment.method does the same without a copy.\n",
        "\b\nMethods:",
        *(f"  {name:8} {summary}" for name, summary in SUMMARIES.items()),
        "  synonyms no label rows: a copy of each query with some of its words replaced",
    ]
)


@click.command(help=HELP)
@click.argument("path", metavar="DATA")
@click.argument("out", metavar="OUT")
@click.option("--method", default="gandalf", show_default=True, metavar="NAME")
@click.option("--delta", type=float, help="Targets must be above this.  [default: the method's]")
@click.option(
    "--rows",
    type=click.Choice(["added", "only", "sampled"]),
    default="added",
    show_default=True,
    help="Add label rows, use them alone, or draw as many rows as there are queries from both.",
)
@click.option("--share", type=float, default=1.0, show_default=True, help="Share of the labels.")
@click.option(
    "--order",
    type=click.Choice(["random", "tail"]),
    default="random",
    show_default=True,
    help="Which labels to use with --share: random ones, or the rarest first.",
)
@click.option("--max-positives", type=int, default=1000, show_default=True, metavar="N",
              help="Ignore queries with more labels in co-occurrence; 0 ignores none.")  # fmt: skip
@click.option("--max-queries", type=int, default=10000, show_default=True, metavar="N",
              help="Sample this many queries of frequent labels; 0 uses all.")  # fmt: skip
@click.option("--walk-steps", type=int, default=400, show_default=True, help="Steps of a walk.")
@click.option("--restart", type=float, default=0.8, show_default=True, help="Restart rate.")
@click.option("--word-share", type=float, default=0.2, show_default=True,
              help="Share of the words that synonyms replaces.")  # fmt: skip
@click.option("--validation-share", type=float, default=0.03, show_default=True,
              help="Share of train to hold out if DATA has no validation split.")  # fmt: skip
@click.option("--seed", type=int, default=17, show_default=True, help="Random seed.")
@click.option("--to", default="jsonl", show_default=True, metavar="FORMAT", help="Format to write.")
@format_option
@sentences
@table_options
def augment(
    path: str,
    out: str,
    method: str,
    validation_share: float,
    seed: int,
    to: str,
    data_format: str | None,
    table: TableOptions,
    **options: Any,
) -> None:
    """Write an augmented copy (see HELP)."""
    import dataclasses

    from umpteen.config.schema import AugmentConfig, RunConfig, ValidationConfig
    from umpteen.data.formats import FORMATS
    from umpteen.data.formats.writing import losses
    from umpteen.files import atomic_folder
    from umpteen.registry import resolve
    from umpteen.training.prepare import augmented, training_splits

    if method not in WRITTEN:  # training has others, which leave no rows to write
        raise ConfigError(f"--method is {method!r}; it must be one of {', '.join(WRITTEN)}")
    config = RunConfig(
        seed=seed,
        validation=ValidationConfig(share=validation_share),
        augment=AugmentConfig(method=method, **options),
    )
    part = resolve(FORMATS, to, kind="format")
    # The folder comes first: an OUT that exists is refused before the work, not after.
    with atomic_folder(out) as folder:
        whole = read_data(path, data_format, table)
        data = training_splits(whole, config)
        found = augmented(data, config, log=log)
        splits = {**whole.splits, **data.splits, "train": found.split}
        made = dataclasses.replace(whole, splits=splits)
        part.write(made, folder)
    lost = losses(made, part.HOLDS)
    if lost:
        log(f"{to} cannot hold: {lost}.")
    log(f"Wrote {out}; measure runs on {path}, whose label frequencies are the real ones.")
