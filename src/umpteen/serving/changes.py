"""The queue of changes: one at a time, and no more waiting than can be made in time."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator

from umpteen.serving.batching import IN_TIME, Overloaded


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
