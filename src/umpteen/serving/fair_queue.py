"""A queue that is fair between clients: each gets its share, however much another one sends."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What can be queued."""

    client: str
    size: float


Job = TypeVar("Job", bound=Sized)


class FairQueue(Generic[Job]):
    """Jobs in the order of start-time fair queueing.

    A client whose jobs add up to more than those of others is served as often as they are, by size
    and not by number. Jobs of one client keep their order. Each operation takes a time that does
    not depend on how many jobs wait, or the logarithm of it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()
        self._jobs: dict[str, deque[Job]] = defaultdict(deque)
        self._gone: set[int] = set()
        self._loads: dict[str, float] = defaultdict(float)
        self._finish: dict[str, float] = {}
        self._virtual = 0.0
        self.size = 0.0
        """Sum over all jobs."""

    def __len__(self) -> int:
        return len(self._heap) - len(self._gone)

    def load(self, client: str) -> float:
        """Return the size of all jobs of a client."""
        return self._loads.get(client, 0.0)

    def before(self, client: str, size: float) -> float:
        """Return how much would be served before the last of new jobs of a client is done."""
        own = self.load(client) + size
        return own + sum(min(load, own) for other, load in self._loads.items() if other != client)

    def push(self, job: Job) -> None:
        """Add a job."""
        start = max(self._virtual, self._finish.get(job.client, 0.0))
        self._finish[job.client] = start + job.size
        heapq.heappush(self._heap, (start, next(self._numbers), job))
        self._jobs[job.client].append(job)
        self._loads[job.client] += job.size
        self.size += job.size

    def peek(self) -> Job | None:
        """Return the next job; None where there is none."""
        while self._heap and id(self._heap[0][2]) in self._gone:
            self._gone.discard(id(heapq.heappop(self._heap)[2]))
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Job:
        """Take the next job out.

        Raises:
            IndexError: If there is none.
        """
        if self.peek() is None:
            raise IndexError("the queue is empty")
        self._virtual, _, job = heapq.heappop(self._heap)
        self._jobs[job.client].popleft()
        self._leave(job)
        return job

    def shed(self, client: str, size: float, limit: float) -> Iterator[Job]:
        """Take out the newest jobs of clients with more than a new one would have."""
        own = self.load(client) + size
        while self.size + size > limit:
            heaviest = max(self._loads, key=self._loads.__getitem__, default=client)
            if heaviest == client or self._loads[heaviest] <= own:
                return
            job = self._jobs[heaviest].pop()
            self._finish[heaviest] -= job.size
            self._gone.add(id(job))
            self._leave(job)
            yield job

    def _leave(self, job: Job) -> None:
        self.size -= job.size
        if self._jobs[job.client]:
            self._loads[job.client] -= job.size
            return
        del self._jobs[job.client], self._loads[job.client]
        if self._finish[job.client] <= self._virtual or not len(self):
            del self._finish[job.client]
        if not len(self):  # nothing waits: all clients start again
            self._finish.clear()
            self.size = 0.0
