"""The definition of a study: its TOML file and the runs it describes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from umpteen.errors import ConfigError
from umpteen.metrics import parse, parse_all
from umpteen.study.toml_values import file_name, number, require_known, text, texts, truth

STUDY_METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100", "C@5")
PLOTS = {
    "epochs": ("switches", "metrics", "against"),
    "shares": ("switches", "metrics"),
    "bins": ("switches",),
    "coverage": ("switches", "metric"),
}
"""Kinds of plots, and what each may name."""
_PLACE = re.compile(r"\{([a-z0-9_-]+)\}")


@dataclass(frozen=True)
class Switch:
    """One variant that runs differ in."""

    name: str
    settings: tuple[str, ...] = ()
    """``section.key=value``, laid over preset, study and data."""
    presets: tuple[str, ...] = ()
    """Only with these; empty for all."""
    data: tuple[str, ...] = ()
    """Only on these; empty for all."""
    share: float | None = None
    """Place on the plot against the share of labels used, percent."""
    line: str = ""
    """Which line of that plot; empty belongs to all lines."""


@dataclass(frozen=True)
class Source:
    """One data set of a study."""

    name: str
    path: str
    """May name a ``--path`` in braces."""
    settings: tuple[str, ...] = ()
    queries: float = 1.0
    """Share of the training queries that are kept, drawn at random; labels and test stay."""
    hidden: int = 0
    """Labels, drawn among those with 1 to 50 training queries, that only test queries keep."""


@dataclass(frozen=True)
class Study:
    """A study, as its file defines it."""

    name: str
    presets: tuple[str, ...]
    seeds: tuple[int, ...]
    sources: tuple[Source, ...]
    switches: tuple[Switch, ...]
    settings: tuple[str, ...] = ()
    metrics: tuple[str, ...] = STUDY_METRICS
    same_steps: bool = True
    """Whether epochs shrink as an augmentation adds rows, so that all switches take equal steps."""
    keep_models: bool = False
    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Groups of labels that are measured alone: the least and most training queries of each."""
    head: str = ""
    """Of table and plots, where a model has it; by default the last of each model's own."""
    plots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    """Texts of the file that named a place, by what they are with the place."""

    def as_written(self, setting: str) -> str:
        """Return a setting as the file has it, so that a result names no folder of this machine."""
        return self.written.get(setting, setting)

    def runs(self) -> list[Run]:
        """Return every run, data set by data set, seeds innermost."""
        return [
            Run(source, preset, switch, seed, (*self.settings, *source.settings, *switch.settings))
            for source in self.sources
            for preset in self.presets
            for switch in self.switches
            if preset in (switch.presets or self.presets)
            and source.name in (switch.data or (source.name,))
            for seed in self.seeds
        ]


@dataclass(frozen=True)
class Run:
    """One run of a study."""

    source: Source
    preset: str
    switch: Switch
    seed: int
    settings: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the run is called in messages and file names."""
        preset = Path(self.preset).stem if self.preset.endswith(".toml") else self.preset
        return f"{self.source.name}--{preset}--{self.switch.name}--seed{self.seed}"


def read_study(path: str | Path, places: Mapping[str, str] | None = None) -> Study:
    """Read a study's file.

    Args:
        path: A TOML file.
        places: What stands for each name in braces in paths and settings.

    Raises:
        ConfigError: If the file is not TOML, a key is not known, or a name in braces has no place.
    """
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; name the TOML file of a study") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        filled = _filled(values, dict(places or {}))
        pairs = zip(_texts_in(filled), _texts_in(values), strict=True)
        return replace(_study(filled, path.stem), written={a: b for a, b in pairs if a != b})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts of tables and lists, in order."""
    if isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(each)
    elif isinstance(value, str):
        yield value


def _filled(value: Any, places: dict[str, str]) -> Any:
    """Return the value with every name in braces replaced."""
    if isinstance(value, dict):
        return {key: _filled(each, places) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, places) for each in value]
    if not isinstance(value, str):
        return value
    missing = [name for name in _PLACE.findall(value) if name not in places]
    if missing:
        raise ConfigError(f"{value!r} needs a place; give --path {missing[0]}=FOLDER")
    return _PLACE.sub(lambda found: places[found[1]], value)


def _study(values: dict[str, Any], stem: str) -> Study:
    known = ("name", "presets", "seeds", "settings", "metrics", "same_steps", "keep_models", "head",
             "groups", "data", "switches", "plots")  # fmt: skip
    require_known(values, known, "")
    for section in ("data", "switches"):
        if not isinstance(values.get(section), dict) or not values[section]:
            raise ConfigError(f"there is no [{section}.NAME]; a study needs one or more")
    sources = []
    for name, each in values["data"].items():
        require_known(each, ("path", "settings", "queries", "hidden"), f"data.{name}.")
        place, settings = text(each, "path", f"data.{name}."), texts(each, "settings")
        kept = number(each, "queries", f"data.{name}.", "above 0 and at most 1", above=0, most=1)
        hidden = number(each, "hidden", f"data.{name}.", "a number of labels", most=1e9)
        sources.append(
            Source(
                file_name(name), place, settings, 1.0 if kept is None else kept, int(hidden or 0)
            )
        )
    switches = []
    for name, each in values["switches"].items():
        require_known(each, ("settings", "presets", "data", "share", "line"), f"switches.{name}.")
        lists = {key: texts(each, key) for key in ("settings", "presets", "data")}
        share = number(each, "share", f"switches.{name}.", "a number from 0 to 100", most=100)
        switches.append(
            Switch(file_name(name), **lists, share=share, line=str(each.get("line", "")))
        )
    seeds = values.get("seeds", [17])
    whole = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not seeds or not whole:
        raise ConfigError(f"seeds must be a list of whole numbers of 0 or more, not {seeds!r}")
    study = Study(
        name=str(values.get("name", stem)),
        presets=texts(values, "presets") or ("unidec-frugal",),
        seeds=tuple(seeds),
        sources=tuple(sources),
        switches=tuple(switches),
        settings=texts(values, "settings"),
        metrics=texts(values, "metrics") or STUDY_METRICS,
        same_steps=truth(values, "same_steps", True),
        keep_models=truth(values, "keep_models", False),
        groups=_groups(values.get("groups", {})),
        head=str(values.get("head", "")),
        plots=values.get("plots", {}),
    )
    _check_names(study)
    _check_metrics(study)
    return study


def _groups(values: Any) -> dict[str, tuple[int, int]]:
    """Return the groups of labels, each with its least and most training queries."""
    if not isinstance(values, dict):
        raise ConfigError("groups must be a table")
    for name, each in values.items():
        pair = isinstance(each, list) and len(each) == 2 and all(type(n) is int for n in each)
        if not pair or not 0 <= each[0] <= each[1]:
            raise ConfigError(
                f"groups.{name} is {each!r}; write the least and most training queries, as [1, 50]"
            )
    return {name: (least, most) for name, (least, most) in values.items()}


def _check_names(study: Study) -> None:
    """Check that names refer to other parts of the file."""
    require_known(study.plots, tuple(PLOTS), "plots.")
    for kind, options in study.plots.items():
        require_known(options, PLOTS[kind], f"plots.{kind}.")
        against = options.get("against", "epoch")
        if against not in ("epoch", "step"):
            raise ConfigError(f"plots.{kind}.against must be epoch or step, not {against!r}")
    switches = [switch.name for switch in study.switches]
    sources = [source.name for source in study.sources]
    named = [("plots", name, switches) for each in study.plots.values()
             for name in texts(each, "switches")]  # fmt: skip
    named += [("switches", name, sources) for each in study.switches for name in each.data]
    for where, name, known in named:
        if name not in known:
            raise ConfigError(f"{where} name {name!r}, which is none of {', '.join(known)}")
    for switch in study.switches:
        unknown = [preset for preset in switch.presets if preset not in study.presets]
        if unknown:
            raise ConfigError(
                f"switch {switch.name!r} names presets the study does not: {', '.join(unknown)}"
            )


def _check_metrics(study: Study) -> None:
    """Check metric names before the first run."""
    parse_all(study.metrics)
    for kind, options in study.plots.items():
        named = [*texts(options, "metrics"), *([options["metric"]] if "metric" in options else [])]
        for metric in named:
            if kind == "epochs":
                parse(metric)  # of validation, which measures its own
            elif metric not in study.metrics:
                raise ConfigError(
                    f"plots.{kind} names {metric!r}, which is none of the study's metrics: "
                    f"{', '.join(study.metrics)}"
                )
