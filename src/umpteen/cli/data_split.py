"""``umpteen data split``: options in, ``split_dataset`` called, a new folder written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from umpteen.cli._options import format_option, json_option, log, sentences, write_json, write_table
from umpteen.cli._table_options import read_data, table_options

if TYPE_CHECKING:
    from umpteen.data.formats.table_options import TableOptions


@click.command()
@click.argument("path", metavar="DATA")
@click.argument("out", metavar="OUT")
@click.option("--test", default=0.1, show_default=True, help="Share of the rows for test.")
@click.option("--validation", default=0.0, show_default=True, help="Share for validation.")
@click.option("--seed", default=17, show_default=True, help="Chooses which rows.")
@click.option("--to", default="jsonl", show_default=True, metavar="FORMAT", help="Format to write.")
@format_option
@json_option
@sentences
@table_options
def split(
    path: str,
    out: str,
    test: float,
    validation: float,
    seed: int,
    to: str,
    data_format: str | None,
    as_json: bool,
    table: TableOptions,
) -> None:
    """Write DATA into the new folder OUT with a test split taken out of its training rows.

    The split is stratified: each label gives its share of texts. The same text is never in both.
    The only text of a label stays in train.
    """
    from umpteen.data.formats import FORMATS
    from umpteen.data.formats.writing import losses
    from umpteen.data.splitting import split_dataset
    from umpteen.files import atomic_folder
    from umpteen.registry import resolve

    part = resolve(FORMATS, to, kind="format")
    # The folder comes first: an OUT that exists is refused before the work, not after.
    with atomic_folder(out) as folder:
        made = split_dataset(
            read_data(path, data_format, table), test=test, validation=validation, seed=seed
        )
        part.write(made, folder)
    lost = losses(made, part.HOLDS)
    if lost:
        log(f"{to} cannot hold: {lost}.")
    counts = {
        name: {"queries": len(each), "labels": int((each.targets.getnnz(axis=0) > 0).sum())}
        for name, each in made.splits.items()
    }
    if as_json:
        write_json(counts)
    else:
        write_table(["split", "texts", "labels"], [[k, *v.values()] for k, v in counts.items()])
    log(f"Wrote {out}. Next: umpteen train {out} --out RUN")
