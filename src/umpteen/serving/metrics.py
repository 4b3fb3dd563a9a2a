"""Prometheus metrics of the service and its process. Label values come from fixed sets."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from umpteen import __version__
from umpteen.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.metrics_core import Metric

MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder that all workers share; must be set before a worker starts."""
CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
COUNTERS = {
    "requests_total": ("Requests by route, method and status.", ("code", "method", "route")),
    "texts_total": ("Texts that were labelled.", ()),
    "rejected_total": ("Requests that were refused, by status.", ("code",)),
    "batch_failures_total": ("Batches that failed and were repeated request by request.", ()),
    "changes_total": ("Labels added, retired or restored and examples added.", ("kind",)),
    "connections_closed_total": ("Connections closed for a limit, by reason.", ("reason",)),
    "reloads_total": ("New versions of the run that were loaded or failed to load.", ("outcome",)),
}
FROM_START = {
    "rejected_total": ("code", ("401", "403", "413", "429", "504")),
    "changes_total": ("kind", ("add_labels", "retire", "restore", "add_examples")),
    "connections_closed_total": (
        "reason",
        ("full", "replaced", "header_timeout", "handshake", "large_header", "large_body",
         "small_chunks"),
    ),
    "reloads_total": ("outcome", ("done", "failed")),
}  # fmt: skip
"""Counters with one label, and its values: shown as 0 before the first event, in every worker."""
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HISTOGRAMS = {
    "request_seconds": ("Time to answer, by route.", ("route",), SECONDS),
    "queue_seconds": ("Time in the queue, of a request or a piece of one.", (), SECONDS),
    "compute_seconds": ("Time to answer a batch.", (), SECONDS),
    "batch_texts": ("Texts answered together.", (), TEXTS),
}
RESERVED_BYTES = 256 << 10
"""Disk space of the counters of a worker, and of its histograms."""
logger = logging.getLogger(__name__)


class ServiceMetrics:
    """Counters, histograms and gauges of one application.

    With several workers counters and histograms are summed over all of them; gauges are those of
    the worker that answers. A metric that cannot be recorded is logged and never fails a request.

    Args:
        shared: The folder of ``MULTIPROCESS_VARIABLE``; None with one worker.
    """

    def __init__(self, shared: str | None = None) -> None:
        prometheus_client.disable_created_metrics()
        self._shared = shared
        if shared:
            reserve(shared)
        self._registry = CollectorRegistry()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._infos: dict[str, tuple[str, Callable[[], list[dict[str, str]]]]] = {}
        self._metrics: dict[str, MetricWrapperBase] = {}
        self._children: dict[tuple[Any, ...], Any] = {}
        for name, (about, labels) in COUNTERS.items():
            self._metrics[name] = Counter(f"umpteen_{name}", about, labels, registry=self._registry)
        for name, (label, values) in FROM_START.items():
            for value in values:
                self._child(name, {label: value})
        for name, (about, labels, bounds) in HISTOGRAMS.items():
            self._metrics[name] = Histogram(
                f"umpteen_{name}", about, labels, buckets=bounds, registry=self._registry
            )

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter."""
        try:
            self._child(name, labels).inc(amount)
        except Exception:
            logger.exception("the counter %s could not be increased", name)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to a histogram."""
        try:
            self._child(name, labels).observe(value)
        except Exception:
            logger.exception("the histogram %s could not be updated", name)

    def _child(self, name: str, labels: dict[str, str]) -> Any:
        """Return the metric with these labels; the look-up of the library takes longer."""
        key = (name, *labels.items())
        child = self._children.get(key)
        if child is None:
            metric = self._metrics[name]
            child = self._children[key] = metric.labels(**labels) if labels else metric
        return child

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Show a value of this process; ``read`` is called on every scrape."""
        self._gauges[name] = (about, read)

    def info(self, name: str, about: str, read: Callable[[], list[dict[str, str]]]) -> None:
        """Show facts as labels of a gauge that is 1; ``read`` returns the labels of each."""
        self._infos[name] = (about, read)

    def render(self) -> str:
        """Return the Prometheus text format."""
        own = CollectorRegistry()
        own.register(self)
        return (self._counts() + generate_latest(own)).decode("utf-8")

    def _counts(self) -> bytes:
        """Return counters and histograms of all workers, or else of this one."""
        if self._shared:
            try:
                registry = CollectorRegistry()
                MultiProcessCollector(registry, path=self._shared)
                return generate_latest(registry)
            except Exception as error:
                logger.error("the counters of other workers cannot be read: %s", error)
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, as ``prometheus_client`` asks of a collector."""
        for name, (about, read) in self._gauges.items():
            try:
                value = read()
            except Exception:
                logger.exception("the gauge %s could not be read", name)
                continue
            yield GaugeMetricFamily(f"umpteen_{name}", about, value=value)
        for name, (about, facts) in self._infos.items():
            try:
                entries = facts()
            except Exception:
                logger.exception("the facts %s could not be read", name)
                continue
            if not entries:
                continue
            family = GaugeMetricFamily(f"umpteen_{name}", about, labels=list(entries[0]))
            for entry in entries:
                family.add_metric(list(entry.values()), 1.0)
            yield family


def reserve(folder: str) -> None:
    """Take the disk space of this process's counters now.

    The files of ``prometheus_client`` are sparse and memory-mapped. On a full disk the first write
    to a page that is not there would end the process.

    Raises:
        ConfigError: If there is no room.
    """
    for kind in ("counter", "histogram"):
        file = os.path.join(folder, f"{kind}_{os.getpid()}.db")
        try:
            with open(file, "ab") as handle:
                os.posix_fallocate(handle.fileno(), 0, RESERVED_BYTES)
        except OSError as error:
            raise ConfigError(
                f"{folder} has no room for the counters of a worker ({error.strerror}); free some, "
                "or set TMPDIR to another folder"
            ) from error


def resident_bytes() -> float:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def unique_bytes(pid: int | str = "self") -> float:
    """Return the memory of a process that no other process shares (unique set size)."""
    total = 0
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as handle:
        for line in handle:
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) << 10
    return total


def build_info() -> dict[str, str]:
    """Return the versions of what serves."""
    import torch
    import uvicorn

    return {
        "version": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "uvicorn": uvicorn.__version__,
    }
