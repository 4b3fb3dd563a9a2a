"""Everything an operator can set about a service, with its limits. No web framework here."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from umpteen.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a model may be called."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Options:
    """Settings of a service; limits of a request are named ``max_...``."""

    runs: tuple[str, ...]
    """Run folders or links to them, as ``RUN`` or ``NAME=RUN``; the first one is active."""
    folder: str | None = None
    """A folder whose runs may be loaded by name while the service runs."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    """Processes; they share the label vectors, which are memory-mapped."""
    device: str = "auto"
    backend: str = "torch"
    """What runs a transformer: ``torch``, ``onnx`` or ``openvino``."""
    hosts: tuple[str, ...] = ()
    """Names by which the service may be called besides its own; ``*`` for any."""
    annif: str | None = None
    """Also serve the run as the project of Annif with this id."""
    keys_file: str | None = None
    """Named keys with scopes; see ``keys``. Read again when it changes."""
    read_token_file: str | None = None
    change_token_file: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    """Certificate chain and private key, PEM; HTTPS with both."""
    otel: bool = False
    """Whether to export spans with OpenTelemetry."""

    max_connections: int = 1000
    """Of one worker; where more clients connect, the longest idle connection is closed."""
    header_seconds: float = 10.0
    """How long a client may take to send the header of a request."""
    body_seconds: float = 30.0
    """How long it may take to send the body."""
    idle_seconds: float = 30.0
    """How long a connection is kept open without a request."""
    max_header_bytes: int = 64 << 10
    max_body_bytes: int = 2 << 20
    max_texts: int = 256
    max_characters: int = 20_000
    """Of one text."""
    max_k: int = 1000
    max_ids: int = 10_000
    """Of a list of labels to allow, deny, retire or restore."""
    max_labels: int = 1000
    """To add or to list at once."""

    budget_ms: float | None = None
    """Milliseconds for re-ranking one text; limits its candidates where a run has that stage."""
    batch_texts: int = 64
    """Texts that are answered together."""
    wait_seconds: float = 0.002
    """How long a batch waits to become as large as the one before it."""
    queue_texts: int = 1024
    """Work that may wait, in units of a text (see ``costs``); beyond it a request gets 429."""
    max_cost: int = 512
    """Of one request, in the same units; no more than the queue holds."""
    max_waiting_changes: int = 16
    """Changes that may wait; one beyond that gets 429 and Retry-After."""
    deadline_seconds: float = 10.0
    """What a request may take at most; it may ask for less."""
    drain_seconds: float = 30.0
    """What accepted requests may take to finish when the service stops."""
    poll_seconds: float = 1.0
    """How often to look for a new version of the run; 0 for never."""
    shared: str | None = None
    """A folder where workers leave their counts for each other."""

    def __post_init__(self) -> None:
        for name in ("batch_texts", "queue_texts", "max_texts", "workers", "max_connections"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.annif is not None and not re.fullmatch(r"[\w-]{1,64}", self.annif, re.ASCII):
            raise ConfigError(
                f"{self.annif!r} cannot be the id of a project of Annif; use letters, digits, _ "
                "and -"
            )
        if (self.certfile is None) != (self.keyfile is None):
            raise ConfigError("HTTPS needs both --certfile and --keyfile")
        object.__setattr__(self, "max_cost", min(self.max_cost, self.queue_texts))
        if not self.runs:
            raise ConfigError("no run is named; name at least one")
        for name in ("deadline_seconds", "header_seconds", "body_seconds", "idle_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; give more than 0")
        if self.wait_seconds < 0:
            raise ConfigError(f"wait_seconds is {self.wait_seconds}; give at least 0")

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return self.host in LOOPBACK or self.host.startswith("127.")

    def to_json(self) -> str:
        """Serialize the options for a worker process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Read what ``to_json`` wrote."""
        values = json.loads(text)
        values |= {name: tuple(values[name]) for name in ("runs", "hosts")}
        return cls(**{field.name: values[field.name] for field in fields(cls)})


def name_runs(given: tuple[str, ...]) -> dict[str, str]:
    """Return the runs by name, from ``RUN`` or ``NAME=RUN``.

    Raises:
        ConfigError: If a name is used twice or cannot be used.

    Example:
        >>> name_runs(("runs/spring", "old=runs/winter"))
        {'spring': 'runs/spring', 'old': 'runs/winter'}
    """
    named: dict[str, str] = {}
    for each in given:
        name, equals, run = each.partition("=")
        if not equals or not NAME.fullmatch(name) or Path(each).exists():
            name, run = Path(os.path.abspath(each)).name, each
        if not NAME.fullmatch(name):
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64] or "run"
        if name in named:
            raise ConfigError(
                f"two runs have the name {name!r} ({named[name]} and {run}); name them: NAME=RUN"
            )
        named[name] = run
    return named
