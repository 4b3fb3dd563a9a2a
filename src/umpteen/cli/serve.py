"""``umpteen serve``: options in, ``serving.run.serve`` called."""

from __future__ import annotations

import os

import click

from umpteen.cli._options import device_option, log, sentences


@click.command()
@click.argument("run")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64))
@click.option(
    "--read-token-file", metavar="FILE", help="Require the token in FILE for every request."
)
@click.option("--change-token-file", metavar="FILE", help="Require the token in FILE for changes.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Accepted host name.")
@click.option("--batch", default=64, show_default=True, help="Most texts of a batch.")
@click.option("--wait-ms", default=2.0, show_default=True, help="Wait of a batch for more.")
@click.option("--queue", default=256, show_default=True, help="Most waiting texts.")
@click.option("--deadline", default=10.0, show_default=True, help="Seconds per request.")
@click.option(
    "--poll", default=1.0, show_default=True, help="Seconds between checks for a new run."
)
@device_option
@sentences
def serve(
    run: str,
    host: str,
    port: int,
    workers: int,
    read_token_file: str | None,
    change_token_file: str | None,
    hosts: tuple[str, ...],
    batch: int,
    wait_ms: float,
    queue: int,
    deadline: float,
    poll: float,
    device: str,
) -> None:
    """Serve RUN over HTTP, with a page at /.

    Labels can be changed while it runs, and a new version of RUN takes over without a lost
    request. Listens on this machine only unless --host is given.
    """
    # Read when torch is imported. Threads that spin while they have nothing to do take the cores
    # from the event loop and from each other: measured, a batch took up to five times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from umpteen.runs import RunFolder
    from umpteen.serving.options import Options
    from umpteen.serving.run import serve as run_service

    RunFolder(run).require()  # a misspelt run should not wait for imports
    options = Options(
        run=run,
        host=host,
        port=port,
        workers=workers,
        device=device,
        hosts=hosts,
        read_token_file=read_token_file,
        change_token_file=change_token_file,
        batch_texts=batch,
        wait_seconds=wait_ms / 1000,
        queue_texts=queue,
        deadline_seconds=deadline,
        poll_seconds=poll,
    )
    run_service(options, log=log)
