"""Limits on connections, before a request exists: number, time, size of heads and chunks.

uvicorn parses HTTP; each of its protocol objects is held by one of ours, which forwards events and
closes connections that break a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import ssl
from collections.abc import Callable
from typing import Any, cast

from umpteen.serving.errors import CODES
from umpteen.serving.options import Options

logger = logging.getLogger("umpteen.serving")

SPARE_FILES = 200
"""Files that a worker may need besides connections."""
SWEEP_SECONDS = 0.25
FREE_READS, MIN_READ_BYTES = 1000, 64
"""A request may come in this many reads of any size; after that they must average as many bytes."""
FREE_BREAKS, MIN_CHUNK_BYTES = 1000, 16
"""The same for line breaks of a chunked body, which has two for each chunk."""
END_OF_HEAD = b"\r\n\r\n"
ABORT_SECONDS = 2.0
"""How long a refused client may take to read the answer."""
PHRASES = {408: b"Request Timeout", 413: b"Content Too Large", 431: b"Header Fields Too Large",
           503: b"Service Unavailable"}  # fmt: skip
CODES_HERE = {**CODES, 503: "overloaded"}


class Connections:
    """The open connections of one worker.

    Connections without a request are closed after a time, and the oldest of them where another
    client needs the place. The application reports by client address when a request starts, when
    its body is complete and when it ends.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.max_connections = min(options.max_connections, allow_files(options.max_connections))
        self.max_wire_bytes = options.max_body_bytes * 9 // 8 + options.max_header_bytes
        self.count: Callable[[str], None] = lambda reason: None
        """Called with the reason of each connection that is closed for a limit."""
        self.tls: ssl.SSLContext | None = None
        """For HTTPS; connections count from their first packet on, not from the handshake on."""
        self._open: dict[Any, Connection] = {}
        self._idle: dict[Connection, None] = {}  # without a request, longest first
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the class for ``uvicorn.Config(http=..)``."""
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        connections = self

        class Guarded(Connection):
            def __init__(self, **given: Any) -> None:
                super().__init__(connections, AutoHTTPProtocol(**given))

        return Guarded

    def add(self, connection: Connection) -> bool:
        """Take a new connection in; return False if there is no place."""
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        if len(self._open) >= self.max_connections:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                self.note("full")
                return False
            self.note("replaced")
            oldest.end()
        self._open[connection.peer] = connection
        self._idle[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]
        self._idle.pop(connection, None)

    def missing(self, connection: Connection) -> bool:
        """Return whether a connection was closed meanwhile."""
        return self._open.get(connection.peer) is not connection

    def start(self, peer: Any) -> None:
        """Note that a request of a client was read up to its body."""
        connection = self._open.get(peer)
        if connection is not None:
            self._idle.pop(connection, None)
            connection.start()

    def received(self, peer: Any) -> None:
        """Note that the body of a request is complete."""
        connection = self._open.get(peer)
        if connection is not None:
            connection.answering = True

    def finish(self, peer: Any) -> None:
        """Note that a request was answered."""
        connection = self._open.get(peer)
        if connection is not None:
            connection.reset()
            self._idle[connection] = None
            connection.resume()

    def note(self, reason: str) -> None:
        """Count and log why a connection is closed."""
        self.count(reason)
        logger.warning("connection closed", extra={"fields": {"why": reason}})

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + SWEEP_SECONDS
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            self.sweep(now, max(0.0, now - due))
            due = now + SWEEP_SECONDS

    def sweep(self, now: float, late: float) -> None:
        """Close connections that have waited too long for a request.

        Args:
            now: The time of the event loop.
            late: Seconds by which the call is late. They do not count: a process that did not run
                has not read what clients sent meanwhile.
        """
        header, idle = self.options.header_seconds, self.options.idle_seconds
        for connection in list(self._idle):
            connection.since += late
            if connection.began is not None:
                connection.began += late
                if now - connection.began > header:
                    connection.refuse(408, "header_timeout", "the request did not come in time")
            elif now - connection.since > idle:
                connection.end()


class Connection(asyncio.Protocol):
    """One connection: forwards events to uvicorn's protocol unless a limit is passed."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self._connections, self._inner = connections, inner
        self._transport: asyncio.Transport | None = None
        self.peer: Any = None
        self._paused = self._forwards = False
        self._early = b""  # what comes with the last packet of a handshake
        self._handshake: asyncio.Task[None] | None = None
        self.reset()

    def reset(self) -> None:
        """Wait for the next request."""
        self.busy = self.answering = False
        self.since = asyncio.get_running_loop().time()
        self.began: float | None = None  # when the first byte of the request came
        self._head = bytearray()
        self._head_complete = self._chunked = False
        self._bytes = self._reads = self._breaks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start, or refuse the connection where there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer = tuple((transport.get_extra_info("peername") or (id(self), 0))[:2])
        self.began = self.since  # a new connection sends at once
        tls = self._connections.tls
        if not self._connections.add(self):
            if tls is None:
                self._write(503, "too many connections; try again in 1 s")
            else:
                self._transport.abort()
        elif tls is None:
            self._open(self._transport)
        else:
            self._transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._secure(tls))

    async def _secure(self, tls: ssl.SSLContext) -> None:
        """Wait for the TLS handshake, no longer than for the head of a request."""
        assert self._transport is not None
        seconds = self._connections.options.header_seconds
        try:
            secure = await asyncio.get_running_loop().start_tls(
                self._transport, self, tls, server_side=True, ssl_handshake_timeout=seconds
            )
        except OSError:  # a TLS error, the time limit, or the client has gone
            self._connections.note("handshake")
            self.end()
            return
        if secure is None or self._connections.missing(self):
            self.end()
            return
        self._open(secure)
        if self._early:
            self.data_received(self._early)

    def _open(self, transport: asyncio.Transport) -> None:
        """Let uvicorn's protocol have the connection."""
        self._transport, self._forwards = transport, True
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Forward data within the limits."""
        assert self._transport is not None
        if not self._forwards and self._handshake is not None:
            self._early += data
            return
        if not self._forwards or self._transport.is_closing():
            return
        if self.began is None:
            self.began = asyncio.get_running_loop().time()
        # Before the application has seen the head (and checked a token) little of a body is read.
        if self.answering or (self._head_complete and not self.busy):
            self._pause()
        problem = self._problem(data)
        if problem is not None:
            self.refuse(*problem)
            return
        self._inner.data_received(data)

    def _problem(self, data: bytes) -> tuple[int, str, str] | None:
        """Count data; return status, reason and message if a limit is passed."""
        limits = self._connections
        self._bytes += len(data)
        self._reads += 1
        if not self._head_complete:
            start = max(0, len(self._head) - len(END_OF_HEAD))
            self._head += data
            end = self._head.find(END_OF_HEAD, start)
            most = limits.options.max_header_bytes
            if end > most or (end < 0 and self._bytes > most):
                return 431, "large_header", f"the header is larger than the {most} bytes accepted"
            if end >= 0:
                self._head_complete = True
                self._chunked = b"chunked" in self._head[:end].lower()
                self._head.clear()
        if self._chunked:
            self._breaks += data.count(b"\r\n")
        if self._bytes > limits.max_wire_bytes:
            most = limits.options.max_body_bytes
            return 413, "large_body", f"the body is larger than the {most} bytes accepted here"
        if (
            self._reads > FREE_READS and self._bytes < self._reads * MIN_READ_BYTES
        ) or self._breaks > FREE_BREAKS + self._bytes // MIN_CHUNK_BYTES:
            return 413, "small_chunks", "the request comes in too many small pieces; send it in one"
        return None

    def start(self) -> None:
        """Note that the application sees the request."""
        self.busy = self._head_complete = True
        self.resume()

    def refuse(self, status: int, reason: str, message: str) -> None:
        """Answer with an error and close; abort where an answer has begun."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._connections.note(reason)
        if self.answering or not self._forwards:
            self.end()
        else:
            self._write(status, message)

    def _write(self, status: int, message: str) -> None:
        assert self._transport is not None
        body = json.dumps({"error": {"code": CODES_HERE[status], "message": message}}).encode()
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        with contextlib.suppress(RuntimeError):
            self._transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\n%s"
                b"content-length: %d\r\n\r\n%s" % (status, PHRASES[status], retry, len(body), body)
            )
            self._transport.close()
        # Without this a client that does not read would hold the connection.
        asyncio.get_running_loop().call_later(ABORT_SECONDS, self._transport.abort)

    def end(self) -> None:
        """Close at once."""
        self._connections.remove(self)
        if self._transport is not None:
            self._transport.abort()

    def _pause(self) -> None:
        assert self._transport is not None
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again after a pause."""
        assert self._transport is not None
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward the end of the connection."""
        self._connections.remove(self)
        if self._forwards:
            self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Forward the end of the client's data."""
        return self._inner.eof_received() if self._forwards else None

    def pause_writing(self) -> None:
        """Forward."""
        if self._forwards:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Forward."""
        if self._forwards:
            self._inner.resume_writing()


def allow_files(wanted: int) -> int:
    """Raise the limit on open files where it is below what is wanted; return the usable number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < need:
        raised = need if hard == resource.RLIM_INFINITY else min(need, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else max(1, soft - SPARE_FILES)
