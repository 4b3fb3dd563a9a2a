"""W3C trace context: the ids of a request's trace, and OpenTelemetry spans."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from umpteen import __version__
from umpteen.errors import ConfigError

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass(frozen=True)
class Trace:
    """The place of a request in a trace."""

    trace_id: str
    span_id: str
    """Of this service's part."""
    parent_id: str | None
    flags: str

    @property
    def header(self) -> str:
        """The header ``traceparent`` for whoever is called or answered next."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def read_trace(header: str | None) -> Trace | None:
    """Return the trace of a request; None for a request without a valid ``traceparent``.

    Example:
        >>> trace = read_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        >>> trace.trace_id, trace.parent_id
        ('4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7')
        >>> read_trace("00-00000000000000000000000000000000-00f067aa0ba902b7-01") is None
        True
    """
    found = TRACEPARENT.fullmatch(header or "")
    if found is None:
        return None
    version, trace_id, parent_id, flags = found.groups()
    if version == "ff" or not int(trace_id, 16) or not int(parent_id, 16):
        return None
    return Trace(trace_id, secrets.token_hex(8), parent_id, flags)


class Tracer:
    """Export a span for each request with OpenTelemetry.

    Args:
        exporter: A span exporter; by default OTLP over HTTP to ``OTEL_EXPORTER_OTLP_ENDPOINT``.

    Raises:
        MissingExtra: If the extra ``otel`` is not installed.
        ConfigError: If no endpoint is set.
    """

    def __init__(self, exporter: Any = None) -> None:
        from umpteen.extras import require

        require("opentelemetry.sdk.trace", extra="otel")
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            if not os.environ.get(ENDPOINT):
                raise ConfigError(f"--otel needs the address of a collector in {ENDPOINT}")
            require("opentelemetry.exporter.otlp.proto.http.trace_exporter", extra="otel")
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        about = {"service.name": "umpteen", "service.version": __version__}
        self._provider = TracerProvider(resource=Resource.create(about))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("umpteen.serving")

    @contextlib.contextmanager
    def span(self, method: str, headers: dict[str, str]) -> Iterator[tuple[Any, Trace]]:
        """Open the span of a request; yields it with its place in the trace."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(
            method, context=extract(headers), kind=SpanKind.SERVER
        ) as span:
            own = span.get_span_context()
            sent = read_trace(headers.get("traceparent"))
            yield (
                span,
                Trace(
                    f"{own.trace_id:032x}",
                    f"{own.span_id:016x}",
                    None if sent is None else sent.parent_id,
                    f"{int(own.trace_flags):02x}",
                ),
            )

    def close(self) -> None:
        """Send what has not been sent."""
        self._provider.shutdown()
