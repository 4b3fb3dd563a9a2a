"""``umpteen repair``: keep what can be read of a damaged store of changes."""

from __future__ import annotations

from dataclasses import asdict

import click

from umpteen.cli._options import json_option, log, sentences, write_json
from umpteen.display import counted


@click.command()
@click.argument("run")
@json_option
@sentences
def repair(run: str, as_json: bool) -> None:
    """Repair the store of changes of RUN.

    Everything that can be read is kept, and the damaged file is put aside. A running service uses
    the repaired store immediately. Restore a backup instead if you have one.
    """
    from umpteen.run_folder import RunFolder
    from umpteen.store.repair import repair as repair_store

    trained, _ = RunFolder(run).require().read_labels()
    report = repair_store(run, trained)
    if as_json:
        values = {} if report is None else asdict(report)
        if report is not None:
            values["damage"] = report.damage.kind.value
            values["aside"] = None if report.aside is None else str(report.aside)
        write_json({"damaged": report is not None, **values})
        return
    if report is None:
        log("nothing is damaged")
        return
    log(
        f"kept {counted(report.labels, 'added label')}, {counted(report.retired, 'retired label')} "
        f"and {counted(report.examples, 'example')}"
    )
    lost = [
        counted(count, name)
        for count, name in (
            (report.lost_changes, "change"),
            (report.lost_labels, "added label"),
            (report.lost_examples, "example"),
        )
        if count
    ]
    if lost:
        log(f"lost {', '.join(lost)}; compare with: umpteen labels list {run} --changed")
    if report.aside is not None:
        log(f"damaged file: {report.aside}")
