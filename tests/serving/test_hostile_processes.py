"""Processes that are killed: nothing of a service is left behind."""

import os
import signal
import socket

import pytest
from waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.processes]


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
        if int(fields[1]) == pid and "spawn_main" in command:
            found.append(int(name))
    return found


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_free(port):
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            again.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_workers_end_with_a_parent_that_is_killed(service, run):
    running = service(run, "--workers", "2")
    until(lambda: len(children(running.process.pid)) == 2)  # one of them may answer already
    workers = children(running.process.pid)
    running.process.kill()
    try:
        until(lambda: not any(map(is_alive, workers)))
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)
    until(lambda: is_free(running.port))
