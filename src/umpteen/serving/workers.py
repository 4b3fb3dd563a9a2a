"""Several worker processes under one parent, which ends even if one of them does not."""

from __future__ import annotations

import logging
import time

from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import STARTUP_FAILURE, Process

SPARE_SECONDS = 5.0
"""What a worker may take to end beyond the time for what it had accepted."""


class Workers(Multiprocess):
    """uvicorn's supervisor; a worker that does not end in time is killed.

    Workers are monitored through their process status; there is no health request.
    """

    def keep_subprocess_alive(self) -> None:
        """Restart workers that have died."""
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set() or worker.process.is_alive():
                continue
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:  # and so would the next
                self.should_exit.set()
                return
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()

    def join_all(self) -> None:
        """Wait for all workers, no longer than the graceful shutdown may take."""
        end = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + SPARE_SECONDS
        for worker in self.processes:
            worker.process.join(max(0.0, end - time.monotonic()))
            if worker.process.is_alive():
                logging.getLogger(__name__).warning("worker %s did not end; killed", worker.pid)
                worker.process.kill()
                worker.process.join()
