"""Run the service with uvicorn: one process, or several that share a socket."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Any

from umpteen.errors import ConfigError
from umpteen.extras import require
from umpteen.serving.options import Options


def serve(options: Options, *, log: Callable[[str], None]) -> None:
    """Serve a run until SIGTERM or SIGINT; accepted requests are finished.

    Args:
        options: Which run, and how.
        log: Told where the service listens.

    Raises:
        RunError: If there is no whole run.
        ConfigError: If a setting is wrong, or the address cannot be used.
        MissingExtra: If the extra ``serve`` is not installed.
    """
    uvicorn = require("uvicorn", extra="serve")
    require("fastapi", extra="serve")
    require("prometheus_client", extra="serve")
    from umpteen.serving.app import ENVIRONMENT, from_environment
    from umpteen.serving.engine import stamp_of
    from umpteen.serving.logs import set_up
    from umpteen.serving.metrics import MULTIPROCESS_VARIABLE

    set_up()
    stamp_of(options.run)
    for which in ("read", "change"):
        options.token(which)
    shared = tempfile.mkdtemp(prefix="umpteen-serve-") if options.workers > 1 else None
    if shared:
        os.environ[MULTIPROCESS_VARIABLE] = shared  # workers inherit it
    options = dataclasses.replace(options, shared=shared)
    os.environ[ENVIRONMENT] = options.to_json()
    try:
        config = uvicorn.Config(
            "umpteen.serving.app:from_environment" if shared else from_environment(),
            factory=bool(shared),
            host=options.host,
            port=options.port,
            workers=options.workers,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            lifespan="on",
            timeout_graceful_shutdown=int(options.drain_seconds),
            timeout_keep_alive=30,
            timeout_worker_healthcheck=120,  # a large model on a busy machine takes its time
            h11_max_incomplete_event_size=64 << 10,
        )
        listening = _bind(config)
        host = f"[{options.host}]" if ":" in options.host else options.host
        log(f"serving {options.run} at http://{host}:{listening.getsockname()[1]}")
        if shared:
            from umpteen.serving.workers import Workers

            Workers(config, sockets=[listening]).run()
        else:
            # uvicorn finishes its work and then raises the signal again: it ends well.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _leave)
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        if shared:
            shutil.rmtree(shared, ignore_errors=True)


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(0)


def _bind(config: Any) -> socket:
    try:
        listening: socket = config.bind_socket()
    except SystemExit:  # uvicorn's way to say so
        raise ConfigError(
            f"{config.host}:{config.port} cannot be listened on: it is taken or not this "
            "machine's; name another with --host and --port"
        ) from None
    # Connections inherit it. Without it the body of a response waits until its head is
    # acknowledged, which callers delay by 40 ms; asyncio sets it only where a socket names TCP.
    listening.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return listening
