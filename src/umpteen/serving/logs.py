"""Logs as one JSON object per line, with a limit on repeated lines. Never the texts of requests."""

from __future__ import annotations

import functools
import json
import logging
import sys
import threading
import time

LINES, PER_SECONDS = 100, 10.0
"""Lines of one kind that are written in a period; the rest is counted."""
UNLIMITED = "request"
"""The line of a request that was granted; see ``middleware``."""


class JsonLines(logging.Formatter):
    """A record as JSON; what a caller put under ``extra={"fields": ..}`` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one line."""
        line = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


@functools.lru_cache(4)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class RepeatedLines(logging.Filter):
    """Drop lines that repeat too often; the next line of the kind says how many were dropped.

    Lines are of one kind if they come from the same logger with the same message before its values
    are filled in, and have the same status where they are about a request.

    Args:
        lines: How many of a kind are written in a period.
        seconds: The period.
    """

    def __init__(self, lines: int = LINES, seconds: float = PER_SECONDS) -> None:
        super().__init__()
        self._lines, self._seconds = lines, seconds
        self._kinds: dict[tuple[str, str, int], list[float]] = {}  # start, written, dropped
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record."""
        fields = getattr(record, "fields", {})
        status = int(fields.get("status", 0))
        if record.msg == UNLIMITED and status < 400:
            return True
        with self._lock:
            kind = self._kinds.setdefault((record.name, str(record.msg), status), [0.0, 0, 0])
            start, written, dropped = kind
            if record.created - start >= self._seconds:
                kind[:] = [record.created, 1, 0]
                if dropped:
                    record.fields = {**fields, "dropped_before": int(dropped)}
                return True
            kind[1 if written < self._lines else 2] += 1
            return written < self._lines


def set_up(level: str = "info") -> None:
    """Send the service's log, and that of uvicorn and asyncio, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(RepeatedLines())
    for name in ("umpteen", "uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name != "uvicorn.error" else []
        logger.setLevel(level.upper() if name != "asyncio" else "WARNING")
        logger.propagate = name == "uvicorn.error"
