"""Settings in and out: presets, TOML files, ``key=value`` changes, JSON. None is defined here."""

from __future__ import annotations

import copy
import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from umpteen.config.schema import RunConfig
from umpteen.errors import ConfigError
from umpteen.files import read_json
from umpteen.registry import refuse_code, suggest

TOML_NAMES: dict[type, str] = {tuple: "a list", dict: "a table"}
"""What a TOML file calls the kinds whose Python name would mislead."""
WITH_GANDALF = "gandalf-"
"""Before a preset's name: the same with label texts as training rows."""


def from_mapping(values: Mapping[str, Any], *, source: str) -> RunConfig:
    """Return a config from nested values; everything wrong is reported at once.

    Args:
        values: Sections and keys, as a TOML file holds them.
        source: Where they come from, for the message.

    Raises:
        ConfigError: Naming each unknown key and wrong type.
    """
    problems: list[str] = []
    config = _fill(RunConfig, values, "", problems)
    if problems:
        raise ConfigError(f"{source}: " + "; ".join(problems))
    try:
        return RunConfig(**config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def with_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Apply ``section.key=value`` strings to nested values.

    Example:
        >>> with_overrides({"train": {"epochs": 3}}, ["train.epochs=5", "seed=1"])
        {'train': {'epochs': 5}, 'seed': 1}
    """
    merged: dict[str, Any] = copy.deepcopy(dict(values))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {override!r}: expected section.key=value")
        *sections, name = key.strip().split(".")
        place = merged
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"--set {override!r}: {section!r} is not a section")
        place[name] = _parse(text.strip())
    return merged


def read_preset(name: str) -> dict[str, Any]:
    """Return the values of a preset by name, or of a TOML file (or a run's config.json) by path.

    ``gandalf-NAME`` is the preset NAME with label texts as training rows.

    Raises:
        ConfigError: If there is neither.
    """
    path = Path(name)
    if path.suffix in (".toml", ".json"):
        return _read_file(path)
    known = preset_names()
    if name not in known and name.startswith(WITH_GANDALF):
        values = read_preset(name.removeprefix(WITH_GANDALF))
        values["augment"] = {"method": "gandalf", **values.get("augment", {})}
        return values
    if name not in known:
        raise ConfigError(
            f"preset {name!r} is not known. Known: {', '.join(known)}; or name a .toml file."
            + suggest(name, known)
        )
    text = (
        resources.files("umpteen").joinpath("config", "presets", f"{name}.toml").read_text("utf-8")
    )
    return tomllib.loads(text)


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    folder = resources.files("umpteen").joinpath("config", "presets")
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def to_json(config: RunConfig) -> dict[str, Any]:
    """Return the config as JSON values."""
    return dataclasses.asdict(config)


def _read_file(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        values = read_json(path, error=ConfigError)
        if isinstance(values, dict):
            values = values.get("config", values)
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: expected an object with sections, got {values!r:.40}")
        refuse_code(values, source=path)  # settings of a run
        return values
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"preset file {path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _parse(text: str) -> Any:
    """Return a TOML value; anything that is none is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _fill(
    kind: type, values: Mapping[str, Any], prefix: str, problems: list[str]
) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    result: dict[str, Any] = {}
    for key, value in values.items():
        if key not in hints:
            problems.append(f"unknown setting {prefix}{key!s}.{suggest(key, hints)}".rstrip("."))
        elif dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, Mapping):
                problems.append(f"{prefix}{key} must be a section, not {value!r}")
                continue
            inner = typing.cast(type, hints[key])
            result[key] = inner(**_fill(inner, value, f"{prefix}{key}.", problems))
        else:
            result[key] = _typed(value, hints[key], f"{prefix}{key}", problems)
    return result


def _typed(value: Any, hint: Any, key: str, problems: list[str]) -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        origin = typing.get_origin(kind) or kind
        if origin is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(value)
        if isinstance(value, origin) and (origin is bool or not isinstance(value, bool)):
            return value
    plain = (typing.get_origin(kind) or kind for kind in kinds if kind is not type(None))
    names = " or ".join(TOML_NAMES.get(kind, kind.__name__) for kind in plain)
    problems.append(f"{key} must be {names}, not {value!r}")
    return value
