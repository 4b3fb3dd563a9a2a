"""``umpteen serve``: options in, ``serving.run.serve`` called."""

from __future__ import annotations

import os

import click

from umpteen.cli._options import backend_option, device_option, log, sentences


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
@click.option("--batch", default=64, show_default=True, help="Most texts of a batch.")
@click.option("--wait-ms", default=2.0, show_default=True, help="Wait of a batch for more.")
@click.option("--queue", default=1024, show_default=True, help="Most waiting texts.")
@click.option("--max-cost", default=512, show_default=True, help="Most work of a request.")
@click.option("--deadline", default=10.0, show_default=True, help="Seconds per request.")
@click.option(
    "--poll", default=1.0, show_default=True, help="Seconds between checks for a new run."
)
@click.option(
    "--max-connections", default=1000, show_default=True, help="Open connections of a worker."
)
@click.option(
    "--header-timeout", default=10.0, show_default=True, help="Seconds for a request's header."
)
@click.option(
    "--idle-timeout", default=30.0, show_default=True, help="Seconds an idle connection is kept."
)
@click.option("--otel", is_flag=True, help="Export spans with OpenTelemetry (extra otel).")
@backend_option
@device_option
@sentences
def serve(
    runs: tuple[str, ...],
    folder: str | None,
    keys_file: str | None,
    host: str,
    port: int,
    workers: int,
    read_token_file: str | None,
    change_token_file: str | None,
    certfile: str | None,
    keyfile: str | None,
    hosts: tuple[str, ...],
    annif: str | None,
    batch: int,
    wait_ms: float,
    queue: int,
    max_cost: int,
    deadline: float,
    poll: float,
    max_connections: int,
    header_timeout: float,
    idle_timeout: float,
    otel: bool,
    backend: str,
    device: str,
) -> None:
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
    options = Options(
        runs=runs,
        folder=folder,
        keys_file=keys_file,
        certfile=certfile,
        keyfile=keyfile,
        otel=otel,
        max_cost=max_cost,
        host=host,
        port=port,
        workers=workers,
        device=device,
        backend=backend,
        annif=annif,
        hosts=hosts,
        read_token_file=read_token_file,
        change_token_file=change_token_file,
        batch_texts=batch,
        wait_seconds=wait_ms / 1000,
        queue_texts=queue,
        deadline_seconds=deadline,
        poll_seconds=poll,
        max_connections=max_connections,
        header_seconds=header_timeout,
        idle_seconds=idle_timeout,
    )
    run_service(options, log=log)
