"""The engine of a worker: its models, the queue of predictions, and the queue of changes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from umpteen.serving.answering import Found, PredictionJob, answer, joined, pieces
from umpteen.serving.batching import IN_TIME, Batcher, BatchTimes, Overloaded
from umpteen.serving.metrics import ServiceMetrics
from umpteen.serving.models import ServedModels
from umpteen.serving.options import Options
from umpteen.serving.served_model import ServedModel
from umpteen.store import ChangeStore

logger = logging.getLogger("umpteen.serving")
CHANGE_PRIORITY = 5
"""Niceness of the thread that encodes changes; on Linux a thread has its own."""


class ChangeQueue:
    """Admit changes one after the other; refuse those that would wait too long.

    Args:
        max_waiting: Changes that may wait.
        seconds: The deadline of a change; one that does not start in half of it is refused.
    """

    def __init__(self, *, max_waiting: int, seconds: float) -> None:
        self._max_waiting, self._seconds = max_waiting, seconds
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._units = 0
        self._seconds_per_unit = 0.0  # a moving average

    @property
    def working(self) -> bool:
        """Whether a change is being made."""
        return self._lock.locked()

    @property
    def waiting(self) -> int:
        """Changes that wait or are being made."""
        return self._waiting

    @contextlib.asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Wait for the turn of a change.

        Args:
            size: How many labels or examples it is about.

        Raises:
            Overloaded: If it would have to wait too long.
        """
        ahead = self._units * self._seconds_per_unit
        if self._waiting > self._max_waiting or ahead > self._seconds * IN_TIME:
            raise Overloaded(max(1, math.ceil(ahead)))
        self._waiting += 1
        self._units += size
        try:
            await self._acquire()
            try:
                start = time.monotonic()
                yield
                per_unit = (time.monotonic() - start) / max(1, size)
                old = self._seconds_per_unit
                self._seconds_per_unit = per_unit if not old else 0.7 * old + 0.3 * per_unit
            finally:
                self._lock.release()
        finally:
            self._waiting -= 1
            self._units -= size

    async def _acquire(self) -> None:
        """Wait for the lock, no longer than the deadline: nothing has been changed by then."""
        try:
            async with asyncio.timeout(self._seconds * IN_TIME):
                await self._lock.acquire()
        except TimeoutError:
            ahead = self._units * self._seconds_per_unit
            raise Overloaded(max(1, math.ceil(ahead))) from None


class Engine:
    """Serve predictions and changes of one or more models."""

    def __init__(self, options: Options, metrics: ServiceMetrics) -> None:
        self.options = options
        self.metrics = metrics
        self.models = ServedModels(options, metrics)
        self.draining = False
        self.changes = ChangeQueue(
            max_waiting=options.max_waiting_changes, seconds=options.deadline_seconds
        )
        self._batcher: Batcher[PredictionJob, Found] | None = None
        self._change_thread = ThreadPoolExecutor(
            1, thread_name_prefix="changes", initializer=_give_way
        )
        self._watch: asyncio.Task[None] | None = None

    @property
    def version(self) -> ServedModel:
        """The version that requests without a model get."""
        return self.models.active

    async def start(self) -> None:
        """Start the queue and the watcher; called on the event loop."""
        options = self.options
        self._batcher = Batcher(
            self._answer,
            batch_size=options.batch_texts,
            wait_seconds=options.wait_seconds,
            queue_size=options.queue_texts,
            on_failure=self._report_batch,
            on_batch=self._observe_batch,
        )
        if options.poll_seconds:
            self._watch = asyncio.create_task(self.models.watch(options.poll_seconds))

    async def stop(self) -> None:
        """Finish accepted requests, then stop."""
        self.draining = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._batcher is not None:
            await self._batcher.close()
        self._change_thread.shutdown(wait=True)
        gc.unfreeze()

    @property
    def waiting(self) -> float:
        """Work in the queue, in units of a text."""
        return self._batcher.waiting if self._batcher is not None else 0.0

    @property
    def watching(self) -> bool:
        """Whether the watcher of the run folders works."""
        return self._watch is not None and not self._watch.done()

    async def predict(self, job: PredictionJob, *, seconds: float, client: str = "") -> Found:
        """Return the labels of some texts (see ``Batcher.submit``)."""
        assert self._batcher is not None
        work = pieces(job, self.version, self.options.batch_texts)
        return joined(await self._batcher.submit(work, seconds=seconds, client=client))

    async def change(
        self,
        kind: str,
        make: Callable[[ChangeStore], int],
        *,
        size: int = 1,
        version: ServedModel | None = None,
    ) -> tuple[int, int]:
        """Make a change in the change thread, one at a time.

        Returns:
            That number, and the revision of the store afterwards.

        Raises:
            Overloaded: If too many changes wait.
            DataError: If the change is refused; nothing has changed then.
            NotWritten: If it cannot be written.
            StoreDamaged: If the store is damaged.
        """

        def work(version: ServedModel) -> tuple[int, int]:
            count = make(version.store)
            revision = version.store.revision
            # New texts are encoded here; a prediction then finds them done.
            version.predictor.snapshot()
            return count, revision

        loop = asyncio.get_running_loop()
        async with self.changes.turn(size):
            chosen = version or self.version
            count, revision = await loop.run_in_executor(self._change_thread, work, chosen)
        self.metrics.add("changes_total", count, kind=kind)
        return count, revision

    def _answer(self, jobs: list[PredictionJob]) -> list[Found]:
        """Answer a batch; jobs about one model together."""
        by_version: dict[int, list[int]] = {}
        for number, job in enumerate(jobs):
            assert job.version is not None
            by_version.setdefault(id(job.version), []).append(number)
        # While a change is encoded in this process its snapshot is not waited for.
        wait = not self.changes.working
        found: dict[int, Found] = {}
        for numbers in by_version.values():
            version = jobs[numbers[0]].version
            assert version is not None
            own = [jobs[number] for number in numbers]
            answers = answer(version.predictor, version.model, own, name=version.name, wait=wait)
            found.update(zip(numbers, answers, strict=True))
        texts = sum(len(job.texts) for job in jobs)
        self.metrics.observe("batch_texts", texts)
        return [found[number] for number in range(len(jobs))]

    def _observe_batch(self, batch: BatchTimes) -> None:
        for waited in batch.waited:
            self.metrics.observe("queue_seconds", waited)
        self.metrics.observe("compute_seconds", batch.seconds)

    def _report_batch(self, error: Exception) -> None:
        self.metrics.add("batch_failures_total")
        fields = {"why": type(error).__name__}  # the message may hold a text
        logger.warning("batch failed, requests are repeated alone", extra={"fields": fields})


def _give_way() -> None:
    """Lower the priority of this thread, so that encoding a change does not delay predictions."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), CHANGE_PRIORITY)
