"""Run the service with uvicorn: one process, or several that share a socket."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import signal
import ssl
import sys
import tempfile
from collections.abc import Callable
from socket import AF_INET, AF_INET6, IPPROTO_TCP, SO_REUSEADDR, SOL_SOCKET, TCP_NODELAY, socket
from typing import TYPE_CHECKING, Any

from umpteen.errors import ConfigError, UmpteenError
from umpteen.extras import installed, require
from umpteen.serving.options import Options, name_runs

if TYPE_CHECKING:
    from fastapi import FastAPI

    from umpteen.serving.connections import Connections

BACKLOG = 2048


def serve(options: Options, *, log: Callable[[str], None]) -> None:
    """Serve a run until SIGTERM or SIGINT; accepted requests are finished.

    Args:
        options: Which run, and how.
        log: Called with the address.

    Raises:
        RunError: If there is no whole run.
        ConfigError: If a setting is wrong, or the address cannot be used.
        MissingExtra: If the extra ``serve`` is not installed.
    """
    for package in ("uvicorn", "fastapi", "prometheus_client"):
        require(package, extra="serve")
    from umpteen.serving.access import Access
    from umpteen.serving.logs import set_up
    from umpteen.serving.metrics import MULTIPROCESS_VARIABLE

    set_up()
    Access(options)
    runs = name_runs(options.runs)
    shared = tempfile.mkdtemp(prefix="umpteen-serve-") if options.workers > 1 else None
    if shared:
        os.environ[MULTIPROCESS_VARIABLE] = shared  # workers inherit it
    options = dataclasses.replace(options, shared=shared)
    try:
        listening = bind(options.host, options.port)
        host = f"[{options.host}]" if ":" in options.host else options.host
        scheme = "https" if options.certfile else "http"
        address = f"{scheme}://{host}:{listening.getsockname()[1]}"
        log(f"serving {', '.join(runs)} at {address}")
        for line in _how_to_use(options, address):
            log(line)
        if not shared:
            _serve(options, listening)
            return
        from umpteen.serving.workers import Workers

        _share_cores(options.workers)
        workers = Workers(
            work,
            options.to_json(),
            listening,
            count=options.workers,
            drain_seconds=options.drain_seconds,
        )
        if workers.run():
            raise UmpteenError("the workers could not start; the log above says why")
    finally:
        if shared:
            shutil.rmtree(shared, ignore_errors=True)


def _how_to_use(options: Options, address: str) -> list[str]:
    """Return a request to try, and how to stop."""
    needs_token = options.keys_file is not None or options.read_token_file is not None
    token = " -H 'Authorization: Bearer TOKEN'" if needs_token else ""
    body = json.dumps({"texts": ["some text"]})
    asked = f"curl {address}/v1/predict{token} -H 'Content-Type: application/json' -d '{body}'"
    return [f"  predict: {asked}", "  stop: Ctrl-C"]


def work(given: str, listening: socket) -> None:
    """Serve in a worker process."""
    import logging

    from umpteen.serving.logs import set_up
    from umpteen.serving.workers import START_FAILED

    set_up()
    options = Options.from_json(given)
    try:
        _serve(options, listening)
    except UmpteenError as error:
        fields = {"why": str(error)}
        logging.getLogger("umpteen.serving").error("worker not started", extra={"fields": fields})
        sys.exit(START_FAILED)


def _serve(options: Options, listening: socket) -> None:
    import uvicorn

    from umpteen.serving.app import create_app
    from umpteen.serving.connections import Connections

    connections = Connections(options)
    app = create_app(options, connections)
    config = server_config(app, options, connections)
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate cannot be read from {options.certfile} and {options.keyfile}: {error}"
        ) from error
    # uvicorn finishes its work and then raises the signal again: the process ends with status 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    uvicorn.Server(config).run(sockets=[listening])


def server_config(app: FastAPI, options: Options, connections: Connections) -> Any:
    """Return uvicorn's configuration."""
    import uvicorn

    return uvicorn.Config(
        app,
        http=connections.protocol(),
        loop=event_loop(options.header_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="on",
        # The address of a client is that of its connection: a header could name any other.
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(options.drain_seconds),
        timeout_keep_alive=max(1, int(options.idle_seconds)),
        ssl_certfile=options.certfile,
        ssl_keyfile=options.keyfile,
    )


def event_loop(handshake_seconds: float) -> Any:
    """Return the class of event loop: uvloop where it is installed, with a limit on handshakes."""
    base: Any = asyncio.SelectorEventLoop
    if installed("uvloop"):
        base = require("uvloop", extra="serve").Loop

    async def create_server(self: Any, *given: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = handshake_seconds
        return await base.create_server(self, *given, **options)

    return type("LimitedLoop", (base,), {"create_server": create_server})


def bind(host: str, port: int) -> socket:
    """Return a socket that listens on an address.

    Raises:
        ConfigError: If the address cannot be used.
    """
    listening = socket(AF_INET6 if ":" in host else AF_INET)
    listening.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); name another with "
            "--host and --port"
        ) from None
    # Connections inherit it. Without it the body of a response waits until its head is
    # acknowledged, which callers delay by 40 ms; asyncio sets it only where a socket names TCP.
    listening.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    listening.set_inheritable(True)
    return listening


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(0)


def _share_cores(workers: int) -> None:
    """Divide the cores among workers, which inherit these variables; set ones are kept."""
    usable = getattr(os, "sched_getaffinity", lambda pid: range(os.cpu_count() or 1))
    share = max(1, len(usable(0)) // workers)
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # torch and faiss; tokenizers
        os.environ.setdefault(name, str(share))
