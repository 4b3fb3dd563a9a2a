"""Who may do what: keys from files that are read again when they change, and rate limits."""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import dataclass

from starlette.types import Scope

from umpteen.errors import ConfigError
from umpteen.serving.errors import Refused
from umpteen.serving.keys import Key, digest, read_keys, read_token
from umpteen.serving.options import Options

logger = logging.getLogger("umpteen.serving")

LOOK_SECONDS = 1.0
"""How often to look whether a file of keys has changed."""
CALLER = "umpteen.caller"


@dataclass(frozen=True)
class Caller:
    """Who sent a request."""

    address: str
    key: Key | None = None

    @property
    def client(self) -> str:
        """Whose turn it is in the queue."""
        return f"key {self.key.name}" if self.key is not None else f"address {self.address}"

    @property
    def who(self) -> str:
        """The name in the audit trail."""
        return self.client


def caller_of(scope: Scope) -> Caller:
    """Return who sent a request."""
    found = scope.get(CALLER)
    return found if isinstance(found, Caller) else Caller("unknown")


def needed_scope(method: str, path: str) -> str:
    """Return the scope that a request needs."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return "change" if path == "/v1/changes" else "read"
    if method == "POST" and path in ("/v1/predict", "/v1/suggest"):
        return "read"
    return "admin" if path.startswith("/v1/models") else "change"


class Access:
    """The keys of a service.

    Raises:
        ConfigError: If a file cannot be read at the start. Later the keys read last stay in force.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._files = [
            file for file in (options.keys_file, options.read_token_file, options.change_token_file)
            if file is not None
        ]  # fmt: skip
        self._stamp = self._look()
        self._looked = time.monotonic()
        self._keys = self._read()
        self._buckets: dict[str, _Bucket] = {}

    @property
    def configured(self) -> bool:
        """Whether there is any file of keys or tokens."""
        return bool(self._files)

    def possible(self, scope: str) -> bool:
        """Return whether any client could do what a scope allows."""
        if self._files:
            return any(key.allows(scope) for key in self._keys.values())
        return scope == "read" or self._options.on_loopback

    def check(self, scope: str, authorization: str, address: str) -> Caller:
        """Return who sent a request.

        Args:
            scope: What the request needs.
            authorization: The header.
            address: Of the connection.

        Raises:
            Refused: If it is not allowed.
        """
        self._follow()
        kind, _, given = authorization.partition(" ")
        key = self._keys.get(digest(given.strip())) if kind.lower() == "bearer" else None
        if scope != "read" and not self.possible(scope):
            raise Refused(403, self._off(scope, key))
        if key is None and self._free(scope):
            return Caller(address)
        if key is None or not key.allows(scope):
            what = {"read": "this service needs", "change": "changes need"}.get(
                scope, "administration needs"
            )
            suffix = "" if key is None else f"; the key {key.name!r} has the scope {key.scope}"
            raise Refused(
                401,
                f"{what} a token: Authorization: Bearer ..{suffix}",
                {"WWW-Authenticate": "Bearer"},
            )
        self._limit(key)
        return Caller(address, key)

    def _off(self, scope: str, key: Key | None) -> str:
        """Return why no client can do what a scope allows."""
        what, verb = ("changes", "are") if scope == "change" else ("administration", "is")
        if self._options.keys_file is not None:
            if key is None:
                return f"{what} {verb} off: no key has the scope {scope}"
            may = "read" if key.scope == "read" else "read and change"
            return f"the key {key.name!r} may only {may}; give it the scope {scope}"
        option = " or --change-token-file" if scope == "change" else ""
        return f"{what} {verb} off: start the service with --keys{option}"

    def _free(self, scope: str) -> bool:
        """Return whether a request needs no key."""
        options = self._options
        if scope == "read":
            return options.keys_file is None and options.read_token_file is None
        return not self._files

    def _limit(self, key: Key) -> None:
        if key.requests_per_second is None:
            return
        bucket = self._buckets.get(key.name)
        rate = key.requests_per_second / self._options.workers
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[key.name] = _Bucket(rate)
        wait = bucket.take()
        if wait:
            retry = max(1, math.ceil(wait))
            raise Refused(
                429,
                f"the key {key.name!r} may send {key.requests_per_second:g} requests per second; "
                f"try again in {retry} s",
                {"Retry-After": str(retry)},
            )

    def _follow(self) -> None:
        """Read the files again if they have changed."""
        now = time.monotonic()
        if not self._files or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = self._read()
            logger.info("keys read", extra={"fields": {"keys": len(self._keys)}})
        except ConfigError as error:
            logger.error("keys not read, the old ones stay", extra={"fields": {"why": str(error)}})

    def _look(self) -> tuple[object, ...]:
        stamp: list[object] = []
        for file in self._files:
            try:
                stat = os.stat(file)
                stamp.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
            except OSError:
                stamp.append(None)
        return tuple(stamp)

    def _read(self) -> dict[str, Key]:
        options, keys = self._options, []
        if options.keys_file is not None:
            keys += read_keys(options.keys_file)
        for scope, file in (
            ("read", options.read_token_file),
            ("change", options.change_token_file),
        ):
            if file is not None:
                keys.append(Key(scope, scope, digest(read_token(file, scope))))
        return {key.sha256: key for key in keys}


class _Bucket:
    """A token bucket that holds the requests of one second, at least one."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._size = max(1.0, rate)
        self._level, self._at = self._size, time.monotonic()

    def take(self) -> float:
        """Take one; return the seconds until there is one, 0 if it was there."""
        now = time.monotonic()
        self._level = min(self._size, self._level + (now - self._at) * self.rate)
        self._at = now
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self.rate
