"""``umpteen data``: check, stats and convert; other commands from their files. Only words here."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from umpteen.errors import DataError

if TYPE_CHECKING:
    from umpteen.data.formats.table_options import TableOptions

ELSEWHERE = {
    "augment": "umpteen.cli.data_augment",
    "build": "umpteen.cli.data_build",
    "split": "umpteen.cli.data_split",
}
"""Commands with a file of their own, imported when they are called or listed."""


class DataGroup(click.Group):
    """Imports the commands of ``ELSEWHERE`` late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, by name."""
        there = [name for name, file in ELSEWHERE.items() if importlib.util.find_spec(file)]
        return sorted([*self.commands, *there])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if importlib.util.find_spec(ELSEWHERE.get(cmd_name, "umpteen.cli.not_there")):
            module = importlib.import_module(ELSEWHERE[cmd_name])
            command: click.Command = getattr(module, cmd_name)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=DataGroup)
def data() -> None:
    """Check, describe, convert, split and build data sets.

    DATA is a folder or a file; - reads jsonl, csv or tsv from standard input.
    """


@data.command()
@click.argument("path", metavar="DATA")
@format_option
@json_option
@sentences
@table_options
def check(path: str, data_format: str | None, as_json: bool, table: TableOptions) -> None:
    """Read all of DATA, count it, and name what looks odd with file and line.

    Warns about empty and repeated texts, the same text with different labels, texts of test that
    are in train, labels that only test has, a label on most rows, labels that look like several,
    and texts that are too long to be read whole.
    """
    from umpteen.config.default_rules import MAX_TOKENS
    from umpteen.data import statistics
    from umpteen.data.checks import find_warnings, words_of
    from umpteen.data.formats import find_format, read_format
    from umpteen.data.text_scan import scan_texts

    name, part = find_format(path, data_format, table)
    dataset = read_format(path, name, part, table)
    for note in dataset.notes:
        log(note)
    scans = scan_texts(dataset, words_of(MAX_TOKENS["bag"]))
    warnings = statistics.check(dataset, part, Path(path), scans)
    warnings += find_warnings(dataset, max_tokens=MAX_TOKENS["bag"], scans=scans)
    splits = {
        each: {
            "queries": len(split),
            "positives": int(split.targets.nnz),
            "filter_pairs": len(split.filters),
        }
        for each, split in dataset.splits.items()
    }
    if as_json:
        found: dict[str, Any] = {"ok": True, "format": name, "name": dataset.name}
        write_json({**found, "labels": len(dataset.labels), "splits": splits, "warnings": warnings})
        return
    title = f"{dataset.name}: {name}, {counted(len(dataset.labels), 'label')}"
    _write_splits(splits, {"queries": "texts", "positives": "their labels"}, title)
    for warning in warnings:
        log(f"warning: {warning}")
    use = "be used" if "train" in splits else "be measured on, not trained: there is no train split"
    log(f"The data can {use}; see the warnings." if warnings else f"The data can {use}.")


@data.command()
@click.argument("path", metavar="DATA")
@format_option
@json_option
@click.option(
    "--plot", metavar="FILE", help="Also draw label frequencies to a .png or .svg (extra plot)."
)
@click.option("--label", metavar="ID", help="Show the labels that come most often with this one.")
@click.option("-n", "most", type=int, default=10, show_default=True, help="How many of those.")
@sentences
@table_options
def stats(
    path: str,
    data_format: str | None,
    as_json: bool,
    plot: str | None,
    label: str | None,
    most: int,
    table: TableOptions,
) -> None:
    """Print counts of DATA and a plot of label frequencies, or the neighbours of one label."""
    if plot is not None and Path(plot).suffix.lower() not in (".png", ".svg"):
        raise click.UsageError(f"--plot must name a .png or .svg file, not {plot!r}")
    from umpteen.data.frequency_plot import draw_file
    from umpteen.data.statistics import BINS, describe
    from umpteen.metrics.bins import frequency_bins

    dataset = read_data(path, data_format, table)
    if label is not None:
        _show_neighbours(dataset, label, most, as_json, plot)
        return
    bins = frequency_bins(dataset.label_counts, BINS) if "train" in dataset else None
    found = describe(dataset, bins)
    if as_json:
        write_json(found)
    else:
        _print_stats(found)
    if plot is not None:
        if bins is None:
            raise DataError("the data has no train split, so there are no frequencies to plot")
        draw_file(dataset, bins, plot)
        log(f"Wrote {plot}")


@data.command()
@click.argument("path", metavar="DATA")
@click.argument("out", metavar="OUT")
@click.option("--to", required=True, metavar="FORMAT", help="The format to write.")
@format_option
@sentences
@table_options
def convert(path: str, out: str, to: str, data_format: str | None, table: TableOptions) -> None:
    """Write DATA into the new folder OUT in another format.

    Formats: annif-csv, annif-folder, annif-jsonl, annif-tsv, csv, jsonl, lf-json, npz, parquet,
    tsv, xc-text.
    """
    from umpteen.data.convert import save_dataset
    from umpteen.data.formats import FORMATS
    from umpteen.registry import resolve

    resolve(FORMATS, to, kind="format")
    lost = save_dataset(read_data(path, data_format, table), out, to)
    if lost:
        log(f"{to} cannot hold: {lost}.")
    log(f"Wrote {out}")


def _show_neighbours(dataset: Any, label: str, most: int, as_json: bool, plot: str | None) -> None:
    from umpteen.data.augment import neighbours as near

    found = near.neighbours(dataset, label, most=most)
    if as_json:
        write_json(found)
    else:
        write_lines(*near.draw_neighbours(found))
    if plot is not None:
        near.draw_neighbours_file(found, plot)
        log(f"Wrote {plot}")


def _write_splits(splits: dict[str, Any], names: dict[str, str], title: str) -> None:
    """Write a row for each split; filter pairs only where there are some."""
    if any(each["filter_pairs"] for each in splits.values()):
        names = {**names, "filter_pairs": "filter pairs"}
    rows = [[split, *(each[name] for name in names)] for split, each in splits.items()]
    write_table(["split", *names.values()], rows, title=title)


def _print_stats(found: dict[str, Any]) -> None:
    from umpteen.data.frequency_plot import draw_text

    labels = found["labels"]
    constants = found["propensity"]
    title = (
        f"{found['name']}: {counted(labels['count'], 'label')}; "
        f"constants of PSP: A {constants['a']:g}, B {constants['b']:g}"
    )
    names = {"queries": "texts", "positives": "their labels", "without_labels": "without labels"}
    _write_splits(found["splits"], names, title)
    spreads: list[tuple[str, dict[str, float]]] = []
    for name, each in found["splits"].items():
        spreads.append((f"{name}: labels per text", each["positives_per_query"]))
        spreads.append((f"{name}: words", each["words"]))
    spreads.append(("labels: words", labels["words"]))
    if "bins" in labels:
        spreads.append(("labels: training texts", labels["queries_per_label"]))
    write_lines("")
    columns = ["mean", "min", "median", "p90", "max"]
    write_table(["", *columns], [[name, *(float(s[c]) for c in columns)] for name, s in spreads])
    if "bins" not in labels:
        return
    write_lines("")
    write_lines(
        f"labels with fewer than {labels['few_queries']} training texts: "
        f"{labels['share_with_few_queries']:.1%}; without any: {labels['without_training_query']}"
    )
    if (linked := labels["as_texts"])["links"]:
        share = linked["both"] / linked["links"]
        write_lines(
            f"training texts that are labels too: {linked['texts']:,}; links between them that "
            f"exist in both directions: {share:.1%} of {linked['links']:,}"
        )
    write_lines("", "Labels that share each fifth of the training pairs, head to tail:")
    write_lines(*draw_text(labels["bins"]))
