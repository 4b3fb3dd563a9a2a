"""Settings for well-known data sets, laid around a preset; no data is read here.

A file holds two tables: ``defaults`` lies below any preset and fills what it leaves open, and
``presets.NAME`` lies above the preset of that name, with the papers' own numbers for it.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from umpteen.errors import ConfigError
from umpteen.registry import suggest

TABLES = ("defaults", "presets")


def dataset_names() -> list[str]:
    """Return the data sets that the package has settings for."""
    folder = resources.files("umpteen").joinpath("config", "presets", "datasets")
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def dataset_text(name: str) -> str:
    """Return the TOML of a data set; names are the data sets' own in small letters.

    Raises:
        ConfigError: If there is none of that name.
    """
    known = dataset_names()
    if name.lower() not in known:
        raise ConfigError(
            f"data set {name!r} is not known. Known: {', '.join(known)}. "
            "Leave it out for other data." + suggest(name.lower(), known)
        )
    file = resources.files("umpteen").joinpath(
        "config", "presets", "datasets", f"{name.lower()}.toml"
    )
    return file.read_text("utf-8")


def around_preset(values: Mapping[str, Any], preset: str, dataset: str) -> dict[str, Any]:
    """Return a preset's values with a data set's settings below and above them.

    Args:
        values: The settings of the preset.
        preset: Its name, with or without ``gandalf-`` before it; a file's name has no settings of
            its own here.
        dataset: The data set's name.
    """
    about = tomllib.loads(dataset_text(dataset))
    name = preset.removeprefix("gandalf-")
    own = dict(about.get("presets", {}).get(name, {}))
    if name != preset:
        own.pop("augment", None)  # the user asked for another augmentation than the paper's
    return lay_over(lay_over(about.get("defaults", {}), values), own)


def lay_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values, those above before those below.

    Example:
        >>> lay_over({"train": {"epochs": 1, "warmup": 0.1}}, {"train": {"epochs": 2}})
        {'train': {'epochs': 2, 'warmup': 0.1}}
    """
    merged = copy.deepcopy(dict(below))
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = lay_over(merged[key], value) if both else copy.deepcopy(value)
    return merged
