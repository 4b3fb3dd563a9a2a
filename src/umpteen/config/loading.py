"""Load a preset or a file as a checked config, and split it into its stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from umpteen.config.known_datasets import around_preset, lay_over
from umpteen.config.schema import RunConfig
from umpteen.config.settings import from_mapping, read_preset, to_json, with_overrides
from umpteen.errors import ConfigError

STAGE_SECTIONS = ("model", "loss", "pool", "batches", "train")
"""What a second stage may change."""
FIXED_IN_STAGES = {
    "train": (
        "max_steps",
        "precision",
        "checkpoint_seconds",
        "label_storage",
        "label_moments",
        "label_device",
        "reporters",
    )  # fmt: skip
}
DEFAULT_PRESET = "unidec-frugal"


def load_config(
    preset: str = DEFAULT_PRESET, overrides: Sequence[str] = (), *, dataset: str | None = None
) -> RunConfig:
    """Return the settings of a preset, a TOML file or a run's config.json, with changes applied.

    Args:
        preset: A preset's name or a file.
        overrides: ``section.key=value`` strings.
        dataset: A well-known data set, whose settings for the preset are taken too.

    Returns:
        The config, checked.

    Example:
        >>> load_config("unidec", ["train.epochs=3"]).train.epochs
        3
    """
    values = read_preset(preset)
    if dataset is not None:
        values = around_preset(values, preset, dataset)
    values = with_overrides(values, overrides)
    source = f"preset {preset}" + (f" for {dataset}" if dataset else "")
    source += " with --set" if overrides else ""
    config = from_mapping(values, source=source)
    try:
        stages(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return config


def stages(config: RunConfig) -> list[RunConfig]:
    """Return the settings of each stage of a run: one, or two where there is a ``stage2``.

    Raises:
        ConfigError: If the second stage names what it cannot change, or is wrong in itself.
    """
    if not config.stage2:
        return [config]
    problems = []
    for section, values in config.stage2.items():
        if section not in STAGE_SECTIONS or not isinstance(values, dict):
            problems.append(f"stage2.{section} is none of {', '.join(STAGE_SECTIONS)}")
            continue
        fixed = [key for key in values if key in FIXED_IN_STAGES.get(section, ())]
        if section == "model":
            fixed = [key for key in values if key != "label_init"]
        problems += [f"stage2.{section}.{key} cannot differ from the run's own" for key in fixed]
    if problems:
        raise ConfigError("; ".join(problems))
    first = to_json(dataclasses.replace(config, stage2={}))
    return [config, from_mapping(lay_over(first, config.stage2), source="stage2")]
