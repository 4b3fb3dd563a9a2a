"""``umpteen study``: several runs from one file, one table and plots. Only words here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import device_option, json_option, log, sentences, write_json, write_lines

if TYPE_CHECKING:
    from umpteen.study.definition import Study
    from umpteen.study.paired import Difference


@click.command()
@click.argument("file", metavar="FILE.toml")
@click.option("--out", required=True, metavar="FOLDER", help="Folder of runs, results and plots.")
@click.option("--path", "places", multiple=True, metavar="NAME=PLACE",
              help="Replace {NAME} in the file by PLACE, a path. Repeatable.")  # fmt: skip
@click.option("--only", multiple=True, metavar="TEXT",
              help="Make only runs with this in their name. Repeatable.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, metavar="N", show_default=True,
              help="Runs at the same time, on one device.")  # fmt: skip
@click.option("--draw", is_flag=True, help="Draw table and plots from existing results.")
@click.option("--list", "listed", is_flag=True, help="List the runs without making them.")
@click.option("--all-heads", is_flag=True, help="One line per head, not the best head only.")
@click.option("--against", metavar="SWITCH",
              help="Also compare every switch with this one, paired over test queries; "
              "preset:NAME compares presets.")  # fmt: skip
@device_option
@json_option
@sentences
def study(
    file: str,
    out: str,
    places: tuple[str, ...],
    only: tuple[str, ...],
    jobs: int,
    draw: bool,
    listed: bool,
    all_heads: bool,
    against: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Make the runs of a study that are missing, then its table and plots.

    Runs that are done are kept; one that was killed continues. The table goes to standard output
    and to FOLDER/table.md, plots to FOLDER/plots.
    """
    from pathlib import Path

    from umpteen.files import atomic_file
    from umpteen.study import paired, results
    from umpteen.study.definition import read_study
    from umpteen.study.drawing import draw_all

    given = dict(_split(place) for place in places)
    plan = read_study(file, given)
    if listed:
        for run in plan.runs():
            write_lines(run.name)
        return
    failed = [] if draw else _run_missing(plan, out, device=device, only=only, jobs=jobs)
    cells = results.read_cells(plan, out)
    made = results.table(plan, cells, heads="all" if all_heads else "best")
    Path(out).mkdir(parents=True, exist_ok=True)
    with atomic_file(Path(out) / "table.md") as temporary:
        temporary.write_text(f"# {plan.name}\n\n{made}", encoding="utf-8")
    written = draw_all(plan, cells, Path(out) / "plots")
    found = [] if against is None else _compare(plan, out, against)
    if as_json:
        compared = {} if against is None else {"differences": paired.as_json(found)}
        write_json({**results.as_json(plan, cells), **compared})
    else:
        write_lines(*made.rstrip("\n").split("\n"))
        if against is not None:
            write_lines("", *paired.table(found).rstrip("\n").split("\n"))
    log(f"Wrote {out}/table.md and {len(written)} plots in {out}/plots")
    for sentence in failed:
        log(f"failed: {sentence}")
    if failed:
        sys.exit(1)


def _compare(plan: Study, out: str, against: str) -> list[Difference]:
    """Return the paired differences, and keep them with those against other switches."""
    from pathlib import Path

    from umpteen.files import write_json as write_file
    from umpteen.study import paired

    found = paired.all_differences(plan, out, against)
    if found:
        write_file(Path(out) / paired.KEPT, paired.as_json(found))
    return [each for each in found if each.against == against.removeprefix(paired.PRESET)]


def _run_missing(plan: Study, out: str, **options: Any) -> list[str]:
    """Make the runs that are missing; return a sentence for each that failed."""
    from umpteen.study.running import run_missing
    from umpteen.training.reporters import Terminal

    try:
        return run_missing(plan, out, log=log, reporters=lambda: [Terminal()], **options)
    except KeyboardInterrupt:
        log("Stopped; run the same command again to continue")
        sys.exit(130)


def _split(place: str) -> tuple[str, str]:
    name, equals, value = place.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--path needs NAME=PLACE, not {place!r}")
    return name, value
