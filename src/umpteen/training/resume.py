"""``train(..., resume=True)``: the settings of a run, compared with those of the command."""

from __future__ import annotations

from typing import Any

from umpteen.config.loading import DEFAULT_PRESET, load_config
from umpteen.config.schema import RunConfig
from umpteen.config.settings import from_mapping, to_json, with_overrides
from umpteen.errors import ConfigError, RunError
from umpteen.files import read_json
from umpteen.run_folder import RunFolder
from umpteen.training.resolve import GivenSettings, ResolvedConfig, resolve_open_settings

BUDGETED = (
    "train.epochs", "train.max_steps", "batches.first_refresh", "ensemble.seconds",
)  # fmt: skip
"""Settings that a time budget changes."""


def read_resolved(folder: RunFolder) -> ResolvedConfig:
    """Read the settings of a run that is resumed.

    Raises:
        RunError: If this is no run, or its settings are damaged.
    """
    settings = from_mapping(folder.read_settings(to_build=True), source=str(folder.config))
    written = read_json(folder.config, error=RunError)
    return ResolvedConfig(
        settings, tuple(written.get("chosen", ())), minutes=written.get("minutes")
    )


def require_same_settings(folder: RunFolder, run: ResolvedConfig, said: GivenSettings) -> None:
    """Raise unless what the command says agrees with the run.

    What the command leaves out is not compared: the run keeps its own settings.
    """
    minutes, config = said.minutes, said.config
    if minutes is not None and minutes != run.minutes:
        how = "without --minutes" if run.minutes is None else f"with --minutes {run.minutes:g}"
        raise _different(folder, f"--minutes is {minutes:g}, but the run was started {how}")
    if not said.whole:
        source = f"{folder.config} with --set"
        config = from_mapping(with_overrides(to_json(run.config), said.overrides), source=source)
    elif config is None:
        config = load_config(said.preset or DEFAULT_PRESET, said.overrides, dataset=said.dataset)
    given, own = _by_key(config), _by_key(run.config)
    del given["train.reporters"]  # a run does not keep them
    if config.encoder.table == "auto":  # what it stands for depends on the machine
        del given["encoder.table"]
    if run.minutes is not None:
        for key in set(BUDGETED) - said.keys:
            given.pop(key, None)
    for key, value in given.items():
        if key not in own or value != own[key]:
            written = repr(own[key]) if key in own else "not set"
            raise _different(folder, f"{key} is {value!r} in the command and {written} in the run")


def _different(folder: RunFolder, difference: str) -> ConfigError:
    return ConfigError(
        f"{folder.path} keeps its own settings when it is resumed: {difference}; leave the option "
        "out to continue the run, or start a new run with another --out"
    )


def _by_key(config: RunConfig) -> dict[str, Any]:
    """Return ``section.key`` to value, with open settings filled in."""
    found: dict[str, Any] = {}
    for section, values in to_json(resolve_open_settings(config)).items():
        if isinstance(values, dict):
            found |= {f"{section}.{key}": value for key, value in values.items()}
        else:
            found[section] = values
    return found
