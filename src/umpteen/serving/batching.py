"""Batch requests: a fair queue with a limit, a short wait, deadlines. Independent of the model."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from umpteen.serving.fair_queue import FairQueue

IN_TIME = 0.5
"""Share of its deadline within which a job must be expected to start."""

Work = TypeVar("Work")
Answer = TypeVar("Answer")


class Overloaded(Exception):
    """The queue is too long for the deadline."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"try again in {retry_after} s")
        self.retry_after = retry_after


class DeadlinePassed(Exception):
    """The deadline passed before there was an answer."""


@dataclass
class _Job(Generic[Work, Answer]):
    work: Work
    size: float
    client: str
    queued: float
    deadline: float
    future: asyncio.Future[Answer] = field(repr=False)


@dataclass(frozen=True)
class _Failure:
    error: Exception


@dataclass(frozen=True)
class BatchTimes:
    """What happened to a batch, for metrics."""

    size: float
    waited: tuple[float, ...]
    """Seconds in the queue, for each job."""
    seconds: float
    """In which it was processed."""


class Batcher(Generic[Work, Answer]):
    """Process jobs in batches, one call per batch, on one thread.

    While a batch is processed the next one gathers. It starts when it has as many jobs as the last
    one, or after a wait: clients that were answered together send their next requests together. A
    lone job starts at once. Every accepted job gets its result, its own error, or
    ``DeadlinePassed``.

    Clients take turns (see ``FairQueue``). Where the queue is full, the newest jobs of the client
    with the most waiting make room for a client with less.

    A batch that fails is repeated job by job, and only the jobs that fail alone get the error.

    Args:
        answer: From a list of work to as many answers; runs on a thread of its own.
        batch_size: How much is answered together, in units of size; larger work goes alone.
        wait_seconds: How long a batch waits to have as many jobs as the one before it.
        queue_size: How much may wait.
        on_failure: Called with the error of a batch that fails as a whole.
        on_batch: Called after each batch.
    """

    def __init__(
        self,
        answer: Callable[[list[Work]], Sequence[Answer]],
        *,
        batch_size: float,
        wait_seconds: float,
        queue_size: float,
        on_failure: Callable[[Exception], None] = lambda error: None,
        on_batch: Callable[[BatchTimes], None] = lambda batch: None,
    ) -> None:
        self._answer, self._on_failure, self._on_batch = answer, on_failure, on_batch
        self._batch_size, self._wait, self._queue_size = batch_size, wait_seconds, queue_size
        self._jobs: FairQueue[_Job[Work, Answer]] = FairQueue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._task: asyncio.Task[None] | None = None
        self._more = asyncio.Event()
        self._enough = asyncio.Event()
        self._working = 0.0  # units in this batch
        self._last = 0  # jobs in the last one
        self._seconds_per_unit = 0.0  # seconds per unit, a moving average
        self._ended = 0.0  # when the last batch was answered

    @property
    def waiting(self) -> float:
        """Units in the queue or being answered."""
        return self._jobs.size + self._working

    async def submit(
        self, work: Sequence[tuple[Work, float]], *, seconds: float, client: str = ""
    ) -> list[Answer]:
        """Queue work and wait for its answers.

        Args:
            work: What to answer, in pieces that may go into different batches, each with its size
                in units such as texts.
            seconds: After which the answers are no longer wanted.
            client: Who asks.

        Returns:
            An answer for each piece.

        Raises:
            Overloaded: If it cannot be answered in time, or loses its place to other clients.
            DeadlinePassed: If it was not answered in time.
        """
        self._make_room(client, sum(size for _, size in work), seconds)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        loop, now = asyncio.get_running_loop(), time.monotonic()
        futures: list[asyncio.Future[Answer]] = []
        for piece, size in work:
            futures.append(loop.create_future())
            self._jobs.push(_Job(piece, size, client, now, now + seconds, futures[-1]))
        self._more.set()
        if len(self._jobs) >= self._last:
            self._enough.set()
        timer = loop.call_later(seconds, _give_up, futures)
        try:
            return [await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures)
        finally:
            timer.cancel()
            for future in futures:  # pieces of a request that failed are not answered
                future.cancel()

    def _make_room(self, client: str, size: float, seconds: float) -> None:
        ahead = (self._working + self._jobs.before(client, size) - size) * self._seconds_per_unit
        late = ahead > seconds * IN_TIME
        everything = max(1, math.ceil(self.waiting * self._seconds_per_unit))
        if not late and self.waiting + size > self._queue_size:
            for job in self._jobs.shed(client, size, self._queue_size - self._working):
                if not job.future.done():
                    job.future.set_exception(Overloaded(everything))
        if late or self.waiting + size > self._queue_size:
            raise Overloaded(everything)

    async def close(self) -> None:
        """Answer what was accepted, then stop."""
        while len(self._jobs) or self._working:
            await asyncio.sleep(0.005)
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        while True:
            await self._more.wait()
            if len(self._jobs) < self._last and self._jobs.size < self._batch_size:
                self._enough.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._enough.wait(), self._wait)
            jobs = self._take()
            self._working = sum(job.size for job in jobs)
            self._last = len(jobs)
            if not len(self._jobs):
                self._more.clear()
            await self._do(jobs)

    def _take(self) -> list[_Job[Work, Answer]]:
        """Return the next batch, without jobs whose callers have gone."""
        taken: list[_Job[Work, Answer]] = []
        size = 0.0
        while (job := self._jobs.peek()) is not None:
            if taken and size + job.size > self._batch_size:
                break
            self._jobs.pop()
            if job.future.done() or job.deadline <= time.monotonic():
                if not job.future.done():
                    job.future.set_exception(DeadlinePassed())
                continue
            taken.append(job)
            size += job.size
        return taken

    async def _do(self, jobs: list[_Job[Work, Answer]]) -> None:
        if not jobs:
            return
        size = self._working
        start = time.monotonic()
        outcomes = await self._outcomes(jobs)
        # From the last answer on where work was waiting by then: under load the time between two
        # batches counts as well.
        now = time.monotonic()
        began = max(self._ended, min(job.queued for job in jobs))
        per_unit, self._ended = (now - min(start, began)) / size, now
        old = 0.9**size if self._seconds_per_unit else 0.0  # a large batch counts more
        self._seconds_per_unit = old * self._seconds_per_unit + (1.0 - old) * per_unit
        self._working = 0.0
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.future.done():
                continue
            if isinstance(outcome, _Failure):
                job.future.set_exception(outcome.error)
            else:
                job.future.set_result(outcome)
        self._on_batch(BatchTimes(size, tuple(start - job.queued for job in jobs), now - start))

    async def _outcomes(self, jobs: list[_Job[Work, Answer]]) -> Sequence[Answer | _Failure]:
        """Process a batch; where that fails, process each of its jobs alone."""
        loop = asyncio.get_running_loop()
        try:
            work = [job.work for job in jobs]
            answers = await loop.run_in_executor(self._thread, self._answer, work)
            if len(answers) != len(jobs):
                raise RuntimeError(f"{len(answers)} answers to {len(jobs)} jobs")
            return answers
        except Exception as error:  # the queue goes on, whatever it is
            if len(jobs) == 1:
                return [_Failure(error)]
            self._on_failure(error)
        outcomes: list[Answer | _Failure] = []
        for job in jobs:
            late = job.future.done() or job.deadline <= time.monotonic()
            outcomes += [_Failure(DeadlinePassed())] if late else await self._outcomes([job])
        return outcomes


def _give_up(futures: Sequence[asyncio.Future[Any]]) -> None:
    """End the wait of a request whose deadline has passed."""
    for future in futures:
        if not future.done():
            future.set_exception(DeadlinePassed())
