"""``umpteen restore``: put a backup in place of a run."""

from __future__ import annotations

import click

from umpteen.cli._options import json_option, log, sentences, write_json


@click.command()
@click.argument("source", metavar="BACKUP")
@click.argument("run")
@json_option
@sentences
def restore(source: str, run: str, as_json: bool) -> None:
    """Put a copy of BACKUP in place of RUN, while services use RUN.

    BACKUP is what umpteen backup wrote. The run that was there is kept under another name, with the
    changes made since the backup.
    """
    from umpteen.run_folder import RunFolder
    from umpteen.store.backup import restore as put_back

    trained, _ = RunFolder(source).require().read_labels()
    done = put_back(source, run, trained)
    if as_json:
        aside = None if done.aside is None else str(done.aside)
        write_json({"run": run, "revision": done.revision, "previous": aside})
        return
    log(f"restored {run} from {source} (revision {done.revision})")
    if done.aside is not None:
        log(f"the run before: {done.aside}")
