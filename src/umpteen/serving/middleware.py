"""What happens around every request: who may ask, how large, safe headers, one line of log."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from typing import Any
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from umpteen.serving import annif
from umpteen.serving.access import CALLER, Access, Caller, caller_of, needed_scope
from umpteen.serving.connections import Connections
from umpteen.serving.errors import Refused, translate
from umpteen.serving.metrics import ServiceMetrics
from umpteen.serving.options import LOOPBACK, Options
from umpteen.serving.tracing import Trace, Tracer, read_trace

logger = logging.getLogger("umpteen.serving")

OPEN = ("/healthz", "/readyz")
"""Answered without a token."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_ENCODED = [(name.lower().encode(), value.encode()) for name, value in SAFE_HEADERS.items()]


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class RequestMiddleware:
    """ASGI middleware: checks before the application sees a request, headers and log after."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        options: Options,
        metrics: ServiceMetrics,
        access: Access,
        connections: Connections | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.app = app
        self._connections, self._tracer = connections, tracer
        self._options, self._metrics, self._access = options, metrics, access
        self._hosts = {*LOOPBACK, options.host, *options.hosts}
        self._any_host = "*" in options.hosts or (not options.on_loopback and not options.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self._connections is not None:
            self._connections.start(scope["client"])
        headers = Headers(scope=scope)
        try:
            if self._tracer is None:
                trace = read_trace(headers.get("traceparent"))
                await self._guarded(scope, receive, send, headers, trace)
            else:
                with self._tracer.span(scope["method"], dict(headers)) as (span, trace):
                    status = await self._guarded(scope, receive, send, headers, trace)
                    span.update_name(f"{scope['method']} {_route(scope)}")
                    span.set_attribute("http.route", _route(scope))
                    span.set_attribute("http.response.status_code", status)
        finally:
            if self._connections is not None:
                self._connections.finish(scope["client"])

    async def _guarded(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, trace: Trace | None
    ) -> int:
        """Check a request, pass it on and log it; returns the status."""
        start = time.perf_counter()
        request_id = os.urandom(8).hex()
        status, read = 0, False

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(message, request_id, trace, close=not read)
            await send(message)

        try:
            self._check_origin(scope["method"], headers)
            scope[CALLER] = self._caller(scope, headers)
            form = annif.takes_form(self._options.annif, scope["path"])
            whole = await self._whole(receive, scope["method"], headers, form=form)
            read = True
            if self._connections is not None:
                self._connections.received(scope["client"])
            await self.app(scope, whole, send_safely)
        except ClientGone:
            pass
        except Exception as error:  # whatever it was, the caller gets a sentence
            if status:
                raise  # the answer has begun; the connection is closed
            await translate(error)(scope, receive, send_safely)
        finally:
            # In the next turn of the event loop, after the answer has been written.
            asyncio.get_running_loop().call_soon(
                self._note, scope, status, time.perf_counter() - start, request_id, trace
            )
        return status or 499

    def _check_origin(self, method: str, headers: Headers) -> None:
        """Refuse requests that a page of another site makes through a browser."""
        if not self._any_host and _host_name(headers.get("host", "")) not in self._hosts:
            raise Refused(
                403, "this service does not answer under that host name; see --allow-host"
            )
        if method in ("GET", "HEAD", "OPTIONS"):
            return
        origin = headers.get("origin")
        if origin is not None and _place(origin).netloc != headers.get("host"):
            raise Refused(403, "requests from pages of other sites are refused")

    def _caller(self, scope: Scope, headers: Headers) -> Caller:
        address = (scope.get("client") or ("unknown",))[0]
        method, path = scope["method"], scope["path"]
        needed = needed_scope(method, path)
        if method == "POST" and annif.reads_only(self._options.annif, path):
            needed = "read"
        if path in OPEN or (needed == "read" and not _protected(path)):
            return Caller(address)
        return self._access.check(needed, headers.get("authorization", ""), address)

    def _forms(self) -> str:
        """Return which route takes a form; empty if none does."""
        project = self._options.annif
        if project is None:
            return ""
        return f"; only /v1/projects/{project}/suggest takes a form, as {annif.FORM}"

    async def _whole(
        self, receive: Receive, method: str, headers: Headers, *, form: bool
    ) -> Receive:
        """Return the body, read up to its limit before the application sees it."""
        most = self._options.max_body_bytes
        too_large = Refused(413, f"the body is larger than the {most} bytes accepted here")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            raise too_large
        if length == "0" and "transfer-encoding" not in headers:
            return receive
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        accepted = ("application/json", *((annif.FORM,) if form else ()))
        if method in ("POST", "PUT") and kind not in accepted:
            # A form of another site could be sent without asking; JSON cannot.
            raise Refused(415, f"send JSON, with Content-Type: application/json{self._forms()}")
        body, more = bytearray(), True
        seconds = self._options.body_seconds
        try:
            async with asyncio.timeout(seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise Refused(408, f"the body did not come within {seconds:g} s") from None
        messages = iter([{"type": "http.request", "body": bytes(body), "more_body": False}])

        async def replay() -> Message:
            return next(messages, None) or await receive()

        return replay

    def _note(
        self, scope: Scope, status: int, seconds: float, request_id: str, trace: Trace | None
    ) -> None:
        path = _route(scope)
        code = status or 499  # the caller went away
        # Words of the caller's own would make counters without end.
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.add("requests_total", route=path, method=method, code=str(code))
        self._metrics.observe("request_seconds", seconds, route=path)
        if code in (401, 403, 413, 429, 504):
            self._metrics.add("rejected_total", code=str(code))
        fields: dict[str, Any] = {
            "id": request_id, "method": method, "route": path, "status": code,
            "ms": round(1000 * seconds, 1),
        }  # fmt: skip
        key = caller_of(scope).key
        if key is not None:
            fields["key"] = key.name
        if trace is not None:
            fields |= {"trace_id": trace.trace_id, "span_id": trace.span_id}
        with contextlib.suppress(OSError):  # standard error may be gone
            logger.info("request", extra={"fields": fields})


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "") or "other")


def _add_headers(message: Message, request_id: str, trace: Trace | None, *, close: bool) -> None:
    headers = message.setdefault("headers", [])
    known = {name for name, _ in headers}
    headers += [each for each in _ENCODED if each[0] not in known]
    own = MutableHeaders(raw=headers)
    own["X-Request-Id"] = request_id
    if trace is not None:
        own["traceparent"] = trace.header
    if close:  # the rest of the body is not parsed
        own["Connection"] = "close"


@functools.lru_cache(256)
def _host_name(host: str) -> str:
    return _place(f"//{host}").hostname or ""


def _place(address: str) -> SplitResult:
    """Return the parts of an address; of one that makes no sense, nothing."""
    try:
        parts = urlsplit(address)
        _ = parts.hostname
    except ValueError:
        return urlsplit("")
    return parts


def _protected(path: str) -> bool:
    """Return whether a path says anything about the run; the page's own files do not."""
    return path.startswith("/v1/") or path in ("/metrics", "/openapi.json", "/report")
