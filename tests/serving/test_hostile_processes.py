"""Processes that are killed: nothing of a service is left behind."""

import os
import signal
import socket
import time

import pytest

from .conftest import PATIENCE

pytestmark = pytest.mark.slow


def children(pid):
    """The processes that a process has started, by what the system lists."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{name}/cmdline") as file:
                command = file.read()
        except OSError:
            continue
        if int(fields[1]) == pid and "resource_tracker" not in command:
            found.append(int(name))
    return found


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_end_with_a_parent_that_is_killed(service, run):
    running = service(run, "--workers", "2")
    workers = children(running.process.pid)
    assert len(workers) == 2
    running.stop(signal.SIGKILL)
    try:
        end = time.monotonic() + PATIENCE
        while any(is_alive(pid) for pid in workers):
            assert time.monotonic() < end, "workers outlive their parent"
            time.sleep(0.05)
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)
    with socket.socket() as again:  # the port is free
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", running.port))
