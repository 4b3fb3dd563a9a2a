"""``umpteen backup``: copy a run folder while it is served and changed."""

from __future__ import annotations

import click

from umpteen.cli._options import json_option, log, sentences, write_json


@click.command()
@click.argument("run")
@click.argument("out")
@json_option
@sentences
def backup(run: str, out: str, as_json: bool) -> None:
    """Copy RUN to the new folder OUT, as of one moment, while services use and change it.

    OUT is a run of its own. umpteen restore puts it in place of RUN.
    """
    from umpteen.run_folder import RunFolder
    from umpteen.store.backup import backup as back_up

    trained, _ = RunFolder(run).require().read_labels()
    revision = back_up(run, out, trained)
    if as_json:
        write_json({"out": out, "revision": revision})
    else:
        log(f"copied {run} to {out} (revision {revision})")
