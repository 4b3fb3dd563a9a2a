"""Single values of a study's file, each of the kind it must be. Their meaning: ``definition``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from umpteen.errors import ConfigError
from umpteen.registry import suggest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def require_known(values: Any, known: tuple[str, ...], prefix: str) -> None:
    """Raise ``ConfigError`` unless the values are a table with known keys alone."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{prefix.rstrip('.')} must be a table")
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown key {prefix}{key}.{suggest(key, known)}".rstrip("."))


def text(values: Mapping[str, Any], key: str, prefix: str) -> str:
    """Return a place, which must be there."""
    if not isinstance(values.get(key), str):
        raise ConfigError(f"{prefix}{key} must be text; it names a folder or file")
    return str(values[key])


def texts(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of texts, empty where there is none."""
    found = values.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ConfigError(f"{key} must be a list of texts, not {found!r}")
    return tuple(found)


def truth(values: Mapping[str, Any], key: str, otherwise: bool) -> bool:
    """Read a boolean; strings such as ``"no"`` are refused."""
    found = values.get(key, otherwise)
    if not isinstance(found, bool):
        raise ConfigError(f"{key} must be true or false, not {found!r}")
    return found


def number(
    values: Mapping[str, Any],
    key: str,
    prefix: str,
    accepted: str,
    *,
    most: float,
    above: float | None = None,
) -> float | None:
    """Return a number from 0, or above ``above``, to ``most``; None where there is none."""
    found = values.get(key)
    if found is None:
        return None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if not is_number or not (0 <= found <= most) or (above is not None and found <= above):
        raise ConfigError(f"{prefix}{key} is {found!r}; it must be {accepted}")
    return float(found)


def file_name(name: str) -> str:
    """Return the name, if it can be part of a file's."""
    if not _NAME.fullmatch(name) or "--" in name:
        raise ConfigError(
            f"{name!r} cannot be a file's name; use letters, digits, dots and single hyphens"
        )
    return name
