"""``umpteen data build``: a data set from packages on this machine. Parsing and writing only."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import log, sentences
from umpteen.data.sources import SOURCES, SUMMARIES

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset

# Each option and the parameter of a source's build() it stands for.
PARAMETERS = {
    "dict_folder": "--dict",
    "lists": "--lists",
    "depth": "--depth",
    "top": "--top",
    "descriptions": "--descriptions",
    "everyday": "--no-everyday",
    "max_share": "--max-share",
    "min_tags": "--min-tags",
    "min_queries": "--min-queries",
    "test_share": "--test-share",
    "seed": "--seed",
    "queries": "--queries",
    "labels": "--labels",
    "positives": "--positives",
    "words": "--words",
}

# \b keeps click from filling the list into a paragraph.
HELP = "\n".join(
    [
        "Make the data set NAME in the new folder OUT, in the jsonl format.\n",
        "\b\nNAME is one of",
        *(f"  {name:9} {summary}" for name, summary in SUMMARIES.items()),
    ]
)


@click.command(help=HELP)
@click.argument("name")
@click.argument("out")
@click.option("--seed", type=int, help="Chooses the held-out queries.  [default: 0]")
@click.option("--test-share", type=float, help="Share of the queries to test on.  [default: 0.25]")
@click.option(
    "--min-queries",
    type=int,
    help="debian, debtags, wordnet: leave out labels on fewer training queries; 3 for debtags, "
    "otherwise  [default: 1]",
)
@click.option(
    "--min-tags", type=int, help="debtags: leave out packages with fewer tags.  [default: 3]"
)
@click.option("--depth", type=int, help="icd10: most characters of a code, 3 to 7.  [default: 4]")
@click.option(
    "--top",
    metavar="LEVEL",
    help="icd10: highest labels: category, block or chapter.  [default: category]",
)
@click.option(
    "--descriptions",
    metavar="WHICH",
    help="icd10: codes whose descriptions train too: own, deeper, all or none.  [default: own]",
)
@click.option(
    "--everyday/--no-everyday",
    default=None,
    help="icd10: train on everyday names too, such as heart attack.  [default: True]",
)
@click.option(
    "--max-share",
    type=float,
    help="debian: leave out labels on a larger share of the queries.  [default: 0.01]",
)
@click.option(
    "--lists",
    metavar="FOLDER",
    help="debian, debtags: package lists.  [default: /var/lib/apt/lists]",
)
@click.option(
    "--dict",
    "dict_folder",
    metavar="FOLDER",
    help="wordnet: the folder of data.noun.  [default: /usr/share/wordnet]",
)
@click.option("--queries", type=int, help="synthetic: training texts.  [default: 450000]")
@click.option("--labels", type=int, help="synthetic: labels.  [default: 300000]")
@click.option("--positives", type=float, help="synthetic: labels per text.  [default: 22.0]")
@click.option("--words", type=float, help="synthetic: words per text.  [default: 10.0]")
@sentences
def build(name: str, out: str, **options: Any) -> None:
    """Make the data set NAME in the new folder OUT (see HELP)."""
    from umpteen.data.formats import jsonl
    from umpteen.files import atomic_folder
    from umpteen.registry import resolve

    source = resolve(SOURCES, name, kind="source")
    given = {key: value for key, value in options.items() if value is not None}
    _check(source, name, given)
    # The folder comes first: an OUT that exists is refused before the work, not after.
    with atomic_folder(out) as folder:
        dataset = source(**given, log=log)
        if hasattr(dataset, "write"):
            written = dataset.write(folder, log=log)
        else:
            jsonl.write(dataset, folder)
            written = _described(dataset)
    log(f"{out}: {written}")


def _described(dataset: Dataset) -> str:
    # A source of one's own may have other splits than train and test.
    queries = " and ".join(f"{len(split)} {each}" for each, split in dataset.splits.items())
    line = f"{queries} queries, {len(dataset.labels)} labels"
    if train := dataset.splits.get("train"):
        line += f", {train.targets.nnz / len(train):.2f} labels per training query"
    return line


def _check(source: Callable[..., Any], name: str, given: dict[str, Any]) -> None:
    accepted = inspect.signature(source).parameters
    for key in given:
        if key not in accepted:
            known = ", ".join(PARAMETERS[p] for p in accepted if p in PARAMETERS)
            raise click.UsageError(f"{PARAMETERS[key]} is no option of {name}; it has {known}.")
