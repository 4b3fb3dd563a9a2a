"""Prometheus metrics of the service. Label values come from fixed sets, never from callers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

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
    "reloads_total": ("New versions of the run that were loaded or failed to load.", ("outcome",)),
}
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HISTOGRAMS = {
    "request_seconds": ("Time to answer, by route.", ("route",), SECONDS),
    "batch_texts": ("Texts answered together.", (), TEXTS),
}

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
        self._registry = CollectorRegistry()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._metrics: dict[str, MetricWrapperBase] = {}
        for name, (about, labels) in COUNTERS.items():
            self._metrics[name] = Counter(f"umpteen_{name}", about, labels, registry=self._registry)
        for name, (about, labels, bounds) in HISTOGRAMS.items():
            self._metrics[name] = Histogram(
                f"umpteen_{name}", about, labels, buckets=bounds, registry=self._registry
            )

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Increase a counter."""
        try:
            metric = self._metrics[name]
            (metric.labels(**labels) if labels else metric).inc(amount)  # type: ignore[attr-defined]
        except Exception:
            logger.exception("the counter %s could not be increased", name)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to a histogram."""
        try:
            metric = self._metrics[name]
            (metric.labels(**labels) if labels else metric).observe(value)  # type: ignore[attr-defined]
        except Exception:
            logger.exception("the histogram %s could not be updated", name)

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Show a value of this process; ``read`` is called on every scrape."""
        self._gauges[name] = (about, read)

    def render(self) -> str:
        """Return the Prometheus text format."""
        registry = self._registry
        if self._shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, path=self._shared)
        own = CollectorRegistry()
        own.register(self)
        return (generate_latest(registry) + generate_latest(own)).decode("utf-8")

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, as ``prometheus_client`` asks of a collector."""
        for name, (about, read) in self._gauges.items():
            try:
                value = read()
            except Exception:
                logger.exception("the gauge %s could not be read", name)
                continue
            yield GaugeMetricFamily(f"umpteen_{name}", about, value=value)


def resident_bytes() -> float:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
