"""Start ``umpteen serve`` in a process of its own and send requests to it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ADDRESS = re.compile(r"at http://\S+:(\d+)")


def serve_command(runs: Sequence[str | Path], flags: Sequence[str] = ()) -> list[str]:
    """The command that serves runs on a free port."""
    return [sys.executable, "-m", "umpteen", "serve", *map(str, runs), "--port", "0", *flags]


def start(
    command: Sequence[str], on_log: Callable[[str], object] = len
) -> tuple[subprocess.Popen, int]:
    """Start a service and return its process and port, once it has named its address.

    Its further log lines go to ``on_log``, so that a full pipe does not stop it.
    """
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = process.stderr
    assert log is not None
    for line in log:
        if found := ADDRESS.search(line):
            reading = threading.Thread(target=lambda: [on_log(each) for each in log], daemon=True)
            reading.start()
            return process, int(found.group(1))
    sys.exit("the service did not start")


@contextmanager
def running(
    command: Sequence[str], on_log: Callable[[str], object] = len
) -> Iterator[tuple[int, int]]:
    """The process id and port of a service that is stopped in the end."""
    process, port = start(command, on_log)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


def post(port: int, path: str, body: dict[str, Any]) -> int | None:
    """Return the status code, or None where no answer came."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def wait_until_ready(port: int) -> None:
    """Wait for the first prediction."""
    while post(port, "/v1/predict", {"texts": "ready?"}) != 200:
        time.sleep(0.02)
