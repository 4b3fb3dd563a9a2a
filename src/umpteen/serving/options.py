"""Everything an operator can set about a service, with its limits. No web framework here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from umpteen.errors import ConfigError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Options:
    """Settings of a service; limits of a request are named ``max_...``."""

    run: str
    """The run folder, or a link to one."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    """Processes; they share the label vectors, which are memory-mapped."""
    device: str = "auto"
    hosts: tuple[str, ...] = ()
    """Names by which the service may be called besides its own; ``*`` for any."""
    read_token_file: str | None = None
    change_token_file: str | None = None

    max_body_bytes: int = 2 << 20
    max_texts: int = 256
    max_characters: int = 20_000
    """Of one text."""
    max_k: int = 1000
    max_ids: int = 10_000
    """Of a list of labels to allow, deny, retire or restore."""
    max_labels: int = 1000
    """To add or to list at once."""

    batch_texts: int = 64
    """Texts that are answered together."""
    wait_seconds: float = 0.002
    """How long a batch waits to become as large as the one before it."""
    queue_texts: int = 256
    """Texts that may wait; a request beyond that gets 429 and Retry-After."""
    deadline_seconds: float = 10.0
    """What a request may take at most; it may ask for less."""
    drain_seconds: float = 30.0
    """What accepted requests may take to finish when the service stops."""
    poll_seconds: float = 1.0
    """How often to look for a new version of the run; 0 for never."""
    shared: str | None = None
    """A folder where workers leave their counts for each other."""

    def __post_init__(self) -> None:
        for name in ("batch_texts", "queue_texts", "max_texts", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.queue_texts < self.max_texts:
            raise ConfigError(
                f"queue_texts is {self.queue_texts}, but one request may hold {self.max_texts} "
                "texts; give the queue at least as much"
            )
        if self.deadline_seconds <= 0 or self.wait_seconds < 0:
            raise ConfigError("deadline_seconds must be above 0 and wait_seconds at least 0")

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return self.host in LOOPBACK or self.host.startswith("127.")

    def token(self, which: str) -> str | None:
        """Return the ``read`` or ``change`` token, from its file.

        Raises:
            ConfigError: If the file cannot be read or holds too short a token.
        """
        file = getattr(self, f"{which}_token_file")
        if file is None:
            return None
        try:
            token = Path(file).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"the {which} token cannot be read from {file}: {error}") from error
        if len(token) < 16 or not token.isascii() or not token.isprintable():
            raise ConfigError(
                f"the {which} token in {file} must be at least 16 printable ASCII characters"
            )
        return token

    def to_json(self) -> str:
        """Serialize the options for a worker process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Read what ``to_json`` wrote."""
        values = json.loads(text)
        values["hosts"] = tuple(values["hosts"])
        return cls(**{field.name: values[field.name] for field in fields(cls)})
