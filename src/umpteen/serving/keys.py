"""Named keys: a file of names, scopes and digests of tokens. Tokens themselves are not stored."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from umpteen.errors import ConfigError
from umpteen.files import atomic_file, read_json

SCOPES = ("read", "change", "admin")
"""Each one includes those before it."""
MIN_TOKEN, MAX_NAME = 16, 64


@dataclass(frozen=True)
class Key:
    """Who may do what."""

    name: str
    scope: str
    sha256: str
    """Of the token, hexadecimal."""
    requests_per_second: float | None = None
    """No limit for None."""

    def allows(self, scope: str) -> bool:
        """Return whether the key may be used for a scope."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)


def digest(token: str) -> str:
    """Return the digest of a token. Tokens are random and long: a plain hash does."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def read_keys(file: str | Path) -> list[Key]:
    """Read a file of keys.

    Raises:
        ConfigError: If it cannot be read or a key is wrong.
    """
    written = read_json(Path(file), error=ConfigError)
    entries = written.get("keys") if isinstance(written, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f'{file}: expected {{"keys": [..]}}; write it with: umpteen keys add')
    keys = [_key(entry, f"{file}: key {number}") for number, entry in enumerate(entries, 1)]
    names = [key.name for key in keys]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{file}: two keys have the name {twice!r}; remove one")
    return keys


def _key(entry: Any, where: str) -> Key:
    try:
        key = Key(**entry)
    except TypeError:
        raise ConfigError(
            f"{where}: expected name, scope, sha256 and perhaps requests_per_second"
        ) from None
    check_name(key.name)
    if key.scope not in SCOPES:
        raise ConfigError(f"{where}: scope {key.scope!r}, expected one of {', '.join(SCOPES)}")
    if not isinstance(key.sha256, str) or len(key.sha256) != 64:
        raise ConfigError(f"{where}: sha256 is not the 64 hexadecimal digits of a SHA-256")
    rate = key.requests_per_second
    if rate is not None and not (isinstance(rate, int | float) and rate > 0):
        raise ConfigError(f"{where}: requests_per_second is {rate!r}, expected more than 0")
    return key


def check_name(name: Any) -> None:
    """Raise unless a name can be used for a key.

    Raises:
        ConfigError: If it cannot.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ConfigError(f"{name!r:.80} is no name of a key: give 1 to {MAX_NAME} characters")


def read_token(file: str | Path, what: str) -> str:
    """Read a token from a file of its own.

    Args:
        file: The file.
        what: What the token is for, for the message.

    Raises:
        ConfigError: If the file cannot be read or holds too short a token.
    """
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the {what} token cannot be read from {file}: {error}") from error
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"the {what} token in {file} must be at least {MIN_TOKEN} printable ASCII characters"
        )
    return token


def add_key(
    file: str | Path, name: str, scope: str, *, rate: float | None = None, token: str | None = None
) -> str:
    """Add a key to a file, or give a known one another token; return the token."""
    check_name(name)
    token = secrets.token_urlsafe(32) if token is None else token
    known = read_keys(file) if Path(file).exists() else []
    new = _key(
        {"name": name, "scope": scope, "sha256": digest(token), "requests_per_second": rate},
        str(file),
    )
    write_keys(file, [*(key for key in known if key.name != name), new])
    return token


def remove_key(file: str | Path, name: str) -> None:
    """Remove a key.

    Raises:
        ConfigError: If the file has no such key.
    """
    known = read_keys(file)
    if name not in [key.name for key in known]:
        raise ConfigError(f"{file} has no key {name!r:.80}; see: umpteen keys list {file}")
    write_keys(file, [key for key in known if key.name != name])


def write_keys(file: str | Path, keys: Sequence[Key]) -> None:
    """Write a file of keys that only its owner can read."""
    entries = [
        {name: value for name, value in asdict(key).items() if value is not None} for key in keys
    ]
    with atomic_file(file) as temporary:
        temporary.touch(0o600)
        temporary.write_text(json.dumps({"keys": entries}, indent=2) + "\n", "utf-8")
