"""Batch requests: a queue with a limit, a short wait, deadlines. Independent of the model."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

IN_TIME = 0.5
"""Share of its deadline within which a job must be expected to start."""

Work = TypeVar("Work")
Answer = TypeVar("Answer")


class Overloaded(Exception):
    """The queue is too long for the deadline.

    Args:
        retry_after: Seconds after which to try again.
    """

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"try again in {retry_after} s")
        self.retry_after = retry_after


class DeadlinePassed(Exception):
    """The deadline passed before there was an answer."""


@dataclass
class _Job(Generic[Work, Answer]):
    work: Work
    size: int
    queued: float
    deadline: float
    future: asyncio.Future[Answer] = field(repr=False)


@dataclass(frozen=True)
class _Failure:
    error: Exception


class Batcher(Generic[Work, Answer]):
    """Process jobs in batches, one call per batch, on one thread.

    While a batch is processed the next one gathers. It starts when it is as large as the last one,
    or after a wait: clients that were answered together send their next requests together. A lone
    job starts at once. Every accepted job gets its result, its own error, or ``DeadlinePassed``.

    A batch that fails is repeated job by job, and only the jobs that fail alone get the error.

    Args:
        answer: From a list of work to as many answers; runs on a thread of its own.
        batch_size: How much is answered together, in units of size; larger work goes alone.
        wait_seconds: How long a batch waits to become as large as the one before it.
        queue_size: How much may wait.
        on_failure: Called with the error of a batch that fails as a whole.
    """

    def __init__(
        self,
        answer: Callable[[list[Work]], Sequence[Answer]],
        *,
        batch_size: int,
        wait_seconds: float,
        queue_size: int,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._answer, self._on_failure = answer, on_failure
        self._batch_size, self._wait, self._queue_size = batch_size, wait_seconds, queue_size
        self._jobs: deque[_Job[Work, Answer]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._task: asyncio.Task[None] | None = None
        self._more = asyncio.Event()
        self._enough = asyncio.Event()
        self._queued = self._last = 0  # units in the queue, and in the last batch
        self._seconds_per_unit = 0.0  # seconds per unit, a moving average
        self._ended = 0.0  # when the last batch was answered
        self.waiting = 0
        """Units in the queue or being answered."""

    async def submit(self, work: Work, size: int, *, seconds: float) -> Answer:
        """Queue work and wait for its answer.

        Args:
            work: What to answer.
            size: How much it is, in units such as texts.
            seconds: After which the answer is no longer wanted.

        Returns:
            Its answer.

        Raises:
            Overloaded: If it cannot be answered in time.
            DeadlinePassed: If it was not.
        """
        ahead = self.waiting * self._seconds_per_unit
        if self.waiting + size > self._queue_size or ahead > seconds * IN_TIME:
            raise Overloaded(max(1, math.ceil(ahead)))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        now = time.monotonic()
        self._jobs.append(_Job(work, size, now, now + seconds, future))
        self.waiting += size
        self._queued += size
        self._more.set()
        if self._queued >= self._last:
            self._enough.set()
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise DeadlinePassed from None

    async def close(self) -> None:
        """Answer what was accepted, then stop."""
        while self._jobs or self.waiting:
            await asyncio.sleep(0.005)
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        while True:
            await self._more.wait()
            if self._queued < self._last:
                self._enough.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._enough.wait(), self._wait)
            jobs = self._take()
            self._last = min(self._batch_size, sum(job.size for job in jobs))
            if not self._jobs:
                self._more.clear()
            await self._do(jobs)

    def _take(self) -> list[_Job[Work, Answer]]:
        """Return the next batch, without jobs whose callers have gone."""
        taken: list[_Job[Work, Answer]] = []
        size = 0
        while self._jobs and (not taken or size + self._jobs[0].size <= self._batch_size):
            job = self._jobs.popleft()
            self._queued -= job.size
            if job.future.done() or job.deadline <= time.monotonic():
                self.waiting -= job.size
                if not job.future.done():
                    job.future.set_exception(DeadlinePassed())
                continue
            taken.append(job)
            size += job.size
        return taken

    async def _do(self, jobs: list[_Job[Work, Answer]]) -> None:
        if not jobs:
            return
        size = sum(job.size for job in jobs)
        start = time.monotonic()
        outcomes = await self._outcomes(jobs)
        # From the last answer on where work was waiting by then: under load the time between two
        # batches counts as well.
        now = time.monotonic()
        began = max(self._ended, min(job.queued for job in jobs))
        per_unit, self._ended = (now - min(start, began)) / size, now
        old = 0.9**size if self._seconds_per_unit else 0.0  # a large batch counts more
        self._seconds_per_unit = old * self._seconds_per_unit + (1.0 - old) * per_unit
        self.waiting -= size
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.future.done():
                continue
            if isinstance(outcome, _Failure):
                job.future.set_exception(outcome.error)
            else:
                job.future.set_result(outcome)

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
