"""Worker processes on one listening socket, and the parent that restarts and ends them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from socket import socket
from typing import Any

logger = logging.getLogger("umpteen.serving")

SPARE_SECONDS = 5.0
"""What a worker may take to end beyond the time for what it had accepted."""
START_FAILED = 3
"""Exit status of a worker that cannot start; another would not either."""
MAX_PAUSE_SECONDS = 30.0
"""Longest pause before a worker that keeps ending is started again."""

Work = Callable[[str, socket], None]


@dataclass
class _Worker:
    process: BaseProcess
    started: float
    failures: int = 0


class Workers:
    """Run ``work`` in several processes until SIGTERM or SIGINT.

    A worker that ends is started again, after a pause that grows while it keeps ending. Workers
    end when the parent does, however it ends. A worker that does not end in time is killed.

    Args:
        work: Called in each worker with ``given`` and the socket; must be importable.
        given: Passed on to it.
        listening: The socket that all of them accept connections on.
        count: How many.
        drain_seconds: What a worker may take to finish accepted requests.
    """

    def __init__(
        self, work: Work, given: str, listening: socket, *, count: int, drain_seconds: float
    ) -> None:
        self._work, self._given, self._listening = work, given, listening
        self._drain_seconds = drain_seconds
        self._context = multiprocessing.get_context("spawn")
        # The parent keeps one end open; workers see it close when the parent is gone.
        self._parent_lives, self._held = self._context.Pipe(duplex=False)
        self._count = count
        self._workers: list[_Worker] = []
        self._stopping = threading.Event()
        self._wake, self._signalled = self._context.Pipe(duplex=False)

    def run(self) -> int:
        """Run until a signal; return 0, or ``START_FAILED`` if the workers cannot start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._workers = [_Worker(self._start(), time.monotonic()) for _ in range(self._count)]
        status = 0
        while not self._stopping.is_set():
            wait([self._wake, *(worker.process.sentinel for worker in self._workers)], 1.0)
            if self._stopping.is_set():
                break
            for place, worker in enumerate(self._workers):
                if worker.process.is_alive():
                    continue
                if worker.process.exitcode == START_FAILED:
                    status = START_FAILED
                    self._stopping.set()
                    break
                self._workers[place] = self._again(worker)
        self._end()
        return status

    def _start(self) -> BaseProcess:
        process = self._context.Process(
            target=_run, args=(self._work, self._given, self._listening, self._parent_lives)
        )
        process.start()
        return process

    def _again(self, worker: _Worker) -> _Worker:
        """Start a worker in the place of one that has ended."""
        lasted = time.monotonic() - worker.started
        failures = 0 if lasted > 2 * MAX_PAUSE_SECONDS else worker.failures + 1
        pause = min(MAX_PAUSE_SECONDS, 2.0 ** (failures - 2)) if failures > 1 else 0.0
        fields = {"pid": worker.process.pid, "status": worker.process.exitcode, "pause_s": pause}
        logger.error("worker ended", extra={"fields": fields})
        self._stopping.wait(pause)
        return _Worker(self._start(), time.monotonic(), failures)

    def _stop(self, number: int, frame: Any) -> None:
        self._stopping.set()
        self._signalled.send_bytes(b"stop")

    def _end(self) -> None:
        """End all workers, no later than the graceful shutdown allows."""
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.terminate()
        end = time.monotonic() + self._drain_seconds + SPARE_SECONDS
        for worker in self._workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            if worker.process.is_alive():
                logger.warning("worker did not end and is killed: %s", worker.process.pid)
                worker.process.kill()
                worker.process.join()


def _run(work: Work, given: str, listening: socket, parent_lives: Connection) -> None:
    threading.Thread(target=_follow, args=(parent_lives,), daemon=True).start()
    try:
        work(given, listening)
    except KeyboardInterrupt:
        sys.exit(0)


def _follow(parent_lives: Connection) -> None:
    """End this process when its parent is gone."""
    try:
        parent_lives.recv_bytes()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
