"""Progress lines of long stages: one when a stage begins, and further ones while nothing is said.

A thread writes them, because a stage may be one call of a library.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

from umpteen.log_lines import Detail
from umpteen.types import Log, Progress

FIRST_SECONDS = 4.0
"""Silence after which a line is written."""
LONGEST_SECONDS = 30.0
"""The pause doubles with every line of a stage, up to this."""


class StageLog:
    """A log that also writes lines while a stage takes long.

    Call it with a line. Enter it for the thread to run; without that it only passes lines on.

    Args:
        log: Receives lines; may be called from another thread.
        first: Seconds of silence before the first line of a stage.
        clock: Measures ``seconds``; ``time.process_time`` for CPU time.
    """

    def __init__(
        self,
        log: Log = lambda text: None,
        *,
        first: float = FIRST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._clock = clock
        self.seconds: dict[str, float] = {}
        """Of each kind of stage that has ended."""
        self._first = self._pause = first
        self._stages: list[_Stage] = []
        self._spoken = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, text: str) -> None:
        """Write a line."""
        self._spoken = time.monotonic()
        self._log(text)

    def also(self, log: Log) -> None:
        """Pass further lines on to another log, too."""
        before = self._log

        def both(text: str) -> None:
            before(text)
            log(text)

        self._log = both

    @contextlib.contextmanager
    def stage(
        self, text: str, *, kind: str | None = None, announced: bool = True
    ) -> Iterator[Progress]:
        """Name what is done while the block runs.

        Args:
            text: What is done, such as ``Encoding 300,000 label texts``.
            kind: Under which its time is added to ``seconds``; the text by default.
            announced: Whether a detail says that it begins; otherwise only a long stage has lines.

        Yields:
            A function that receives how much is done, and of how much.
        """
        stage, started = _Stage(text), self._clock()
        if announced:
            self(Detail(text))
        self._stages.append(stage)
        self._pause = self._first
        try:
            yield stage.update
        finally:
            self._stages.remove(stage)
            self._pause = self._first
            kind = kind or text
            self.seconds[kind] = self.seconds.get(kind, 0.0) + self._clock() - started

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._first / 8):
            stages = self._stages[-1:]
            if stages and time.monotonic() - self._spoken >= self._pause:
                # A full disk must not end the thread, and with it all later lines.
                with contextlib.suppress(OSError, ValueError):  # ValueError: a closed stream
                    self(stages[0].line())
                self._pause = min(2 * self._pause, max(self._first, LONGEST_SECONDS))


class _Stage:
    def __init__(self, text: str) -> None:
        self._text = text
        self._started = time.monotonic()
        self._done = self._total = 0

    def update(self, done: int, total: int) -> None:
        self._done, self._total = done, total

    def line(self) -> str:
        seconds = f"{time.monotonic() - self._started:.0f} s"
        if not self._total:
            return f"{self._text}: {seconds}"
        return f"{self._text}: {self._done:,} of {self._total:,} ({seconds})"


QUIET = StageLog()
"""Writes nothing."""


def as_stage_log(log: Log) -> StageLog:
    """Return a log that has stages; one that has them already is returned as it is."""
    return log if isinstance(log, StageLog) else StageLog(log)


def log_table(
    rows: Mapping[str, Mapping[str, float]], columns: Sequence[str], described: str, log: Log
) -> None:
    """Write metrics as a table.

    Args:
        rows: Name of a row to its values by column, percent.
        columns: Which to write.
        described: What they were measured on.
        log: Receives the lines.
    """
    width = max(map(len, rows))
    log(f"{'Percent':<{width}}  {'  '.join(f'{name:>6}' for name in columns)}  {described}")
    for name, values in rows.items():
        log(f"{name:<{width}}  {'  '.join(f'{values[each]:6.2f}' for each in columns)}")
