"""``umpteen serve``: options in, ``serving.run.serve`` called.

Options of the command have the names of ``serving.options.Options``.
"""

from __future__ import annotations

import os
from typing import Any

import click

from umpteen.cli._options import backend_option, budget_option, device_option, log, sentences


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64))
@click.option("--runs", "folder", metavar="FOLDER", help="Runs that can be loaded by name.")
@click.option(
    "--keys", "keys_file", metavar="FILE", help="Named keys with scopes; see umpteen keys."
)
@click.option(
    "--read-token-file", metavar="FILE", help="Require the token in FILE for every request."
)
@click.option("--change-token-file", metavar="FILE", help="Require the token in FILE for changes.")
@click.option("--certfile", metavar="FILE", help="Certificate for HTTPS, PEM.")
@click.option("--keyfile", metavar="FILE", help="Private key of the certificate, PEM.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Accepted host name.")
@click.option(
    "--annif", metavar="PROJECT_ID", help="Also answer Annif's http backend under this project id."
)
@click.option(
    "--batch", "batch_texts", default=64, show_default=True, help="Most texts of a batch."
)
@click.option("--wait-ms", default=2.0, show_default=True, help="Wait of a batch for more.")
@click.option("--queue", "queue_texts", default=1024, show_default=True, help="Most waiting texts.")
@click.option("--max-cost", default=512, show_default=True, help="Most work of a request.")
@click.option(
    "--deadline", "deadline_seconds", default=10.0, show_default=True, help="Seconds per request."
)
@click.option(
    "--poll",
    "poll_seconds",
    default=1.0,
    show_default=True,
    help="Seconds between checks for a new run.",
)
@click.option(
    "--max-connections", default=1000, show_default=True, help="Open connections of a worker."
)
@click.option(
    "--header-timeout",
    "header_seconds",
    default=10.0,
    show_default=True,
    help="Seconds for a request's header.",
)
@click.option(
    "--idle-timeout",
    "idle_seconds",
    default=30.0,
    show_default=True,
    help="Seconds an idle connection is kept.",
)
@click.option("--otel", is_flag=True, help="Export spans with OpenTelemetry (extra otel).")
@budget_option
@backend_option
@device_option
@sentences
def serve(runs: tuple[str, ...], wait_ms: float, **options: Any) -> None:
    """Serve one or more runs over HTTP, with a page at /.

    The first RUN is active: it gets requests that name no model. NAME=RUN gives a run another name
    than that of its folder. Labels can be changed while it runs, and a new version of a run takes
    over without a lost request. Listens on this machine only unless --host is given.
    """
    # Read when torch is imported. Threads that spin while they have nothing to do take the cores
    # from the event loop and from each other: measured, a batch took up to five times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from umpteen.run_folder import RunFolder
    from umpteen.serving.options import Options, name_runs
    from umpteen.serving.run import serve as run_service

    for run in name_runs(runs).values():
        RunFolder(run).require()  # a misspelt run should not wait for imports
    run_service(Options(runs=runs, wait_seconds=wait_ms / 1000, **options), log=log)
