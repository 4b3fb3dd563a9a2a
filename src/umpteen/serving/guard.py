"""What happens around every request: who may ask, how large, safe headers, one line of log."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import uuid
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from umpteen.serving.errors import Refused, translate
from umpteen.serving.metrics import ServiceMetrics
from umpteen.serving.options import LOOPBACK, Options

logger = logging.getLogger("umpteen.serving")

OPEN = ("/healthz", "/readyz")
"""Answered without a token."""
METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
BODY_SECONDS = 30
READS = {("POST", "/v1/predict")}
"""Changes nothing although it is a POST."""
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


class Guard:
    """ASGI middleware: checks before the application sees a request, headers and log after.

    Args:
        app: The application.
        options: Settings of the service.
        metrics: Where to count.
        read_token: Needed for everything but the page and health; None where none is needed.
        change_token: Needed for changes; reads are granted with it too.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        options: Options,
        metrics: ServiceMetrics,
        read_token: str | None,
        change_token: str | None,
    ) -> None:
        self.app = app
        self._options, self._metrics = options, metrics
        self._read, self._change = read_token, change_token
        self._hosts = {*LOOPBACK, options.host, *options.hosts}
        self._any_host = "*" in options.hosts or (not options.on_loopback and not options.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        request_id = uuid.uuid4().hex[:16]
        status = 0

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-Id"] = request_id
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_origin(scope["method"], headers)
            self._check_token(scope["method"], scope["path"], headers)
            whole = await self._whole(receive, scope["method"], headers)
            await self.app(scope, whole, send_safely)
        except Exception as error:  # whatever it was, the caller gets a sentence
            if status:
                raise  # the answer has begun; the connection is closed
            await translate(error)(scope, receive, send_safely)
        finally:
            self._note(scope, status, time.perf_counter() - start, request_id)

    def _check_origin(self, method: str, headers: Headers) -> None:
        """Refuse requests that a page of another site makes through a browser."""
        host = _place(f"//{headers.get('host', '')}").hostname or ""
        if not self._any_host and host not in self._hosts:
            raise Refused(
                403, "this service does not answer under that host name; see --allow-host"
            )
        if method in ("GET", "HEAD", "OPTIONS"):
            return
        origin = headers.get("origin")
        if origin is not None and _place(origin).netloc != headers.get("host"):
            raise Refused(403, "requests from pages of other sites are refused")

    def _check_token(self, method: str, path: str, headers: Headers) -> None:
        changes = method not in ("GET", "HEAD", "OPTIONS") and (method, path) not in READS
        if changes and self._change is None and needs_token(self._options):
            raise Refused(403, "changes are off: start the service with --change-token-file")
        needed = [self._change] if changes else [self._read, self._change]
        if path in OPEN or needed[0] is None or not _protected(path):
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        fits = [hmac.compare_digest(given.encode(), token.encode()) for token in needed if token]
        if kind.lower() != "bearer" or not any(fits):
            what = "changes need" if changes else "this service needs"
            raise Refused(
                401, f"{what} a token: Authorization: Bearer ..", {"WWW-Authenticate": "Bearer"}
            )

    async def _whole(self, receive: Receive, method: str, headers: Headers) -> Receive:
        """Return the body, read up to its limit before the application sees it."""
        most = self._options.max_body_bytes
        too_large = Refused(413, f"the body is larger than the {most} bytes accepted here")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            raise too_large
        if length == "0" and "transfer-encoding" not in headers:
            return receive
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            # A form of another site could be sent without asking; JSON cannot.
            raise Refused(415, "send JSON, with Content-Type: application/json")
        body, more = b"", True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise Refused(408, f"the body did not come within {BODY_SECONDS} s") from None
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            return next(messages, None) or await receive()

        return replay

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = scope.get("route")
        path = str(getattr(route, "path", "") or "other")
        code = status or 499  # the caller went away
        # Words of the caller's own would make counters without end.
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.add("requests_total", route=path, method=method, code=str(code))
        self._metrics.observe("request_seconds", seconds, route=path)
        if code in (401, 403, 413, 429, 504):
            self._metrics.add("rejected_total", code=str(code))
        fields = {"id": request_id, "method": method, "route": path, "status": code}
        logger.info("request", extra={"fields": {**fields, "ms": round(1000 * seconds, 1)}})


def needs_token(options: Options) -> bool:
    """Return whether a change needs a token: off loopback, and wherever any token is set."""
    return not options.on_loopback or options.read_token_file is not None


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
