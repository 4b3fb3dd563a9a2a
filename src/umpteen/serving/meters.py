"""Metrics for Prometheus, summed over workers through small files. No texts or labels in them."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

from umpteen.files import atomic_file

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COUNTERS = {
    "requests_total": "Requests by route and status.",
    "texts_total": "Texts that were labelled.",
    "rejected_total": "Requests that were refused, by status.",
    "batch_failures_total": "Batches that failed and were repeated request by request.",
    "changes_total": "Labels added, retired or restored and examples added, by kind.",
    "swaps_total": "New versions of the run that were loaded or failed to load, by outcome.",
}
HISTOGRAMS = {
    "request_seconds": ("Time to answer, by route.", SECONDS),
    "batch_texts": ("Texts answered together.", TEXTS),
}
FLUSH_SECONDS = 1.0

Key = tuple[str, tuple[tuple[str, str], ...]]


class Meters:
    """Counters and histograms of this process; gauges are asked when they are shown.

    Args:
        shared: A folder where every worker leaves its counts; None where there is one worker.
    """

    def __init__(self, shared: str | None = None) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Key, float] = {}
        self._buckets: dict[Key, list[float]] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._shared = Path(shared) if shared else None
        self._flushed = 0.0

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count something."""
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount
        self._flush()

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into its histogram."""
        bounds = HISTOGRAMS[name][1]
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            # A count for each bound, one above all of them, and the sum.
            cells = self._buckets.setdefault(key, [0.0] * (len(bounds) + 2))
            cells[bisect_left(bounds, value)] += 1
            cells[-1] += value

    def gauge(self, name: str, about: str, ask: Callable[[], float]) -> None:
        """Show a value of this process that goes up and down."""
        self._gauges[name] = (about, ask)

    def render(self) -> str:
        """The Prometheus text format, for all workers together."""
        counts, buckets = self._together()
        lines = []
        for name, about in COUNTERS.items():
            lines += _head(name, about, "counter")
            for (which, labels), amount in sorted(counts.items()):
                if which == name:
                    lines.append(f"umpteen_{name}{_labels(labels)} {amount:g}")
        for name, (about, bounds) in HISTOGRAMS.items():
            lines += _head(name, about, "histogram")
            for (which, labels), cells in sorted(buckets.items()):
                if which == name:
                    lines += _histogram(name, labels, bounds, cells)
        for name, (about, ask) in self._gauges.items():
            lines += [*_head(name, about, "gauge"), f"umpteen_{name} {ask():g}"]
        return "\n".join(lines) + "\n"

    def _together(self) -> tuple[dict[Key, float], dict[Key, list[float]]]:
        with self._lock:
            counts = dict(self._counts)
            buckets = {key: list(cells) for key, cells in self._buckets.items()}
        own = f"worker-{os.getpid()}.json"
        for file in sorted(self._shared.glob("worker-*.json")) if self._shared else ():
            if file.name == own:
                continue
            try:
                theirs = json.loads(file.read_text("utf-8"))
            except (OSError, ValueError):  # of a worker that has just ended
                continue
            for name, labels, amount in theirs["counts"]:
                key = (name, tuple((a, b) for a, b in labels))
                counts[key] = counts.get(key, 0) + amount
            for name, labels, cells in theirs["buckets"]:
                key = (name, tuple((a, b) for a, b in labels))
                mine = buckets.get(key, [0.0] * len(cells))
                buckets[key] = [a + b for a, b in zip(mine, cells, strict=True)]
        return counts, buckets

    def _flush(self) -> None:
        """Leave our counts where other workers find them, once a second at most."""
        if self._shared is None or time.monotonic() - self._flushed < FLUSH_SECONDS:
            return
        self._flushed = time.monotonic()
        with self._lock:
            value: dict[str, Any] = {
                "counts": [[*key, amount] for key, amount in self._counts.items()],
                "buckets": [[*key, cells] for key, cells in self._buckets.items()],
            }
        # A full disk or a removed folder must not fail a request.
        with (
            contextlib.suppress(OSError),
            atomic_file(self._shared / f"worker-{os.getpid()}.json") as temporary,
        ):
            temporary.write_text(json.dumps(value), "utf-8")


def resident_bytes() -> float:
    """Memory of this process that is in use."""
    with open("/proc/self/statm", encoding="ascii") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP umpteen_{name} {about}", f"# TYPE umpteen_{name} {kind}"]


def _labels(labels: tuple[tuple[str, str], ...], **more: str) -> str:
    pairs = [*labels, *more.items()]
    return "{" + ",".join(f'{name}="{value}"' for name, value in pairs) + "}" if pairs else ""


def _histogram(
    name: str,
    labels: tuple[tuple[str, str], ...],
    bounds: tuple[float, ...],
    cells: list[float],
) -> list[str]:
    lines, total = [], 0.0
    for bound, count in zip((*bounds, float("inf")), cells, strict=False):
        total += count
        le = "+Inf" if bound == float("inf") else f"{bound:g}"
        lines.append(f"umpteen_{name}_bucket{_labels(labels, le=le)} {total:g}")
    lines.append(f"umpteen_{name}_sum{_labels(labels)} {cells[-1]:.6f}")
    lines.append(f"umpteen_{name}_count{_labels(labels)} {total:g}")
    return lines
