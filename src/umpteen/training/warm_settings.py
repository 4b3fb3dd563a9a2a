"""Settings of a run that starts from another one: its own, with a shorter schedule."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from umpteen.config.known_datasets import lay_over
from umpteen.config.schema import EnsembleConfig, RunConfig
from umpteen.config.settings import from_mapping, to_json, with_overrides
from umpteen.data.dataset import Dataset
from umpteen.data.samplers import grown_cluster_size
from umpteen.display import counted
from umpteen.errors import ConfigError, DataError, RunError
from umpteen.files import read_json
from umpteen.run_folder import RunFolder
from umpteen.training.previous_changes import read_changes
from umpteen.training.resolve import GivenSettings, ResolvedConfig, resolve_config

EPOCHS = 0.1
"""Of the epochs of the other run, at least one."""
GROWN = 2.0
"""With more than so many times the texts of the other run, training is as long as from nothing: a
short one from the weights of a few texts ranks worse."""
MIN_TEXTS = 20
"""Labelled texts from which on an ensemble is cross-validated. With fewer, a model that is trained
from label names ranks worse than they do."""
RATES = ("lr_encoder", "lr_heads", "lr_labels")
SCHEDULE = ("epochs", "max_steps", *RATES)
FREE = (
    "dropout", "classifier_dropout", "label_dropout", "label_init", "learn_temperatures",
)  # fmt: skip
"""Settings of the section model that may differ from the other run's."""


def resolve_warm(
    run: RunFolder, data: Dataset, given: GivenSettings, *, changes: bool = True
) -> ResolvedConfig:
    """Return the settings of a run that starts from another one.

    They are those of the other run with the user's changes and a shorter schedule. A preset, data
    set or config that is given is used as it is. If the other run was never trained, or on far
    fewer texts, its encoder and heads are kept and the rest is chosen as for a new run.

    Args:
        run: The other run.
        data: The data, without the changes of the other run.
        given: The user's settings.
        changes: Whether labels and examples that were added to the other run are trained on.
    """
    before = from_mapping(run.read_settings(to_build=True), source=str(run.config))
    trained = bool(run.n_train())
    reasons: tuple[str, ...] = ()
    if changes and "train" in data:
        own = read_changes(run, run.read_labels()[0], changes=True)
        data = own.applied(data, before.data.text)
    grown = trained and "train" in data and len(data["train"]) > GROWN * run.n_train()
    if not given.whole and trained and not grown:
        config = _continued(run, before, given)
        stages = [config.train.epochs, *_stage2_epochs(config)]
        epochs = " and ".join(f"{n:,}" for n in stages)
        reasons = (f"train.epochs {epochs}: settings of {run.path} with a shorter schedule",)
        given = dataclasses.replace(given, config=config)
    elif not given.whole:
        kept = _encoder_overrides(before) + (_shape_overrides(before) if trained else [])
        given = dataclasses.replace(given, overrides=[*kept, *given.overrides])
    found = resolve_config(data, given)
    if grown and not given.whole:
        texts = f"{len(data['train']):,} training texts, {run.n_train():,} in {run.path}"
        reasons = (f"train.epochs {found.config.train.epochs}: {texts}",)
    require_same_shape(found.config, before, run, trained=trained)
    if not trained and found.config.ensemble.enabled != "off":
        _require_texts(run, data)
    whole = dataclasses.replace(found.config, encoder=before.encoder)
    return dataclasses.replace(found, config=whole, reasons=(*reasons, *found.reasons))


def _require_texts(run: RunFolder, data: Dataset) -> None:
    """Raise if there are too few labelled texts to train a run of label names on.

    Raises:
        DataError: If they are, and there is no validation split.
    """
    if "train" not in data or "validation" in data:
        return
    n = int(np.count_nonzero(np.diff(data["train"].filtered_targets().indptr)))
    if n < MIN_TEXTS:
        raise DataError(
            f"{counted(n, 'labelled text')} cannot improve on the label names of {run.path}; train "
            f"with {MIN_TEXTS} or more, and store fewer as corrections with umpteen examples add"
        )


def _continued(run: RunFolder, before: RunConfig, given: GivenSettings) -> RunConfig:
    """Return the settings of a trained run with the user's changes and a shorter schedule."""
    schedule = schedule_of(run)
    whole = lay_over(to_json(before), schedule)
    if read_json(run.config, error=RunError).get("minutes") is not None:  # undo what it cut
        whole["ensemble"]["seconds"] = EnsembleConfig().seconds
    source = f"{run.config} with --set"
    config = from_mapping(with_overrides(whole, given.overrides), source=source)
    return shortened(config, given.keys, schedule)


def schedule_of(run: RunFolder) -> dict[str, Any]:
    """Return the schedule that a run and the runs before it were first trained with.

    Empty for a run without training.
    """
    origin = run.origin / "origin.json"
    if origin.is_file():
        about = read_json(origin, error=RunError)
        if about.get("schedule"):
            return dict(about["schedule"])
    if not run.n_train():
        return {}
    settings = run.read_settings(to_build=True)
    schedule = {"train": {key: settings["train"][key] for key in SCHEDULE}}
    second = settings.get("stage2", {}).get("train", {})
    if second:
        schedule["stage2"] = {"train": {k: v for k, v in second.items() if k in SCHEDULE}}
    return schedule


def shortened(
    config: RunConfig, user_keys: Collection[str], schedule: Mapping[str, Any] | None = None
) -> RunConfig:
    """Return the settings of a shorter schedule, each unless it is given.

    Rates are multiplied by the square root of the share of the epochs. This lies between all of
    them, which undo what the weights have learned, and the share itself, where a linear fall to
    zero would be when that share of the epochs is left: too small for new texts and labels.

    Args:
        config: The settings, with the whole schedule where the user did not give another one.
        user_keys: Settings that the user gave.
        schedule: The whole schedule, as ``schedule_of`` returns it; by default that of the config.
    """
    values = to_json(config)
    before, second = copy.deepcopy(values["batches"]), values["stage2"]
    whole = lay_over(values, schedule or {})
    epochs = whole["train"]["epochs"]
    share = _shorten(values["train"], whole["train"], EPOCHS, _keys_of("train", user_keys))
    _as_at_the_end(values["batches"], before, epochs, _keys_of("batches", user_keys))
    if "train" in second:
        own = whole["stage2"]["train"]
        epochs = own.get("epochs", epochs)
        _shorten(second["train"], own, share, _keys_of("stage2.train", user_keys))
    if "batches" in second:
        own = lay_over(before, second["batches"])
        _as_at_the_end(second["batches"], own, epochs, _keys_of("stage2.batches", user_keys))
    return from_mapping(values, source="a shorter schedule")


def _keys_of(section: str, user_keys: Collection[str]) -> set[str]:
    start = f"{section}."
    return {key.removeprefix(start) for key in user_keys if key.startswith(start)}


def _shorten(
    train: dict[str, Any], whole: Mapping[str, Any], share: float, given: set[str]
) -> float:
    """Shorten a stage and lower its rates; return its share of the whole stage.

    ``share`` is that of a stage whose length does not say it.
    """
    lengths = [key for key in ("max_steps", "epochs") if train.get(key)]
    if not given & {"epochs", "max_steps"}:
        for key in lengths:
            train[key] = math.ceil(EPOCHS * train[key])
    compared = [key for key in lengths if whole.get(key)]
    if compared:
        share = min(1.0, train[compared[0]] / whole[compared[0]])
    for key in RATES:
        if train.get(key) and key not in given:
            train[key] *= math.sqrt(share)
    return share


def _as_at_the_end(
    batches: dict[str, Any], before: Mapping[str, Any], epochs: int, given: set[str]
) -> None:
    """Set batches of a stage to what they were at its end: clusters from the first epoch on."""
    if before["double_epochs"] and not given & {"cluster_size", "double_epochs"}:
        batches["cluster_size"] = grown_cluster_size(
            epochs - 1, before["cluster_size"], before["double_epochs"], before["size"]
        )
        batches["double_epochs"] = []
    if before["first_refresh"] and "first_refresh" not in given:
        batches["first_refresh"] = 0


def require_same_shape(
    config: RunConfig, before: RunConfig, run: RunFolder, *, trained: bool
) -> None:
    """Raise if settings need an encoder or heads of another shape than those of a run.

    Raises:
        ConfigError: With the first setting that differs.
    """
    asked, own = to_json(config), to_json(before)
    keys = [("encoder", key) for key in own["encoder"]]
    if before.data.chunks > 1:
        keys.append(("data", "max_tokens"))
    if trained or before.data.chunks > 1:
        keys.append(("data", "chunks"))
    if trained:
        keys += [("model", key) for key in own["model"] if key not in FREE]
    for section, key in keys:
        value, theirs = asked[section][key], own[section][key]
        if value != theirs:
            raise ConfigError(
                f"{section}.{key} is {value!r}, but {run.path} has {theirs!r}, and its encoder and "
                "heads are taken over; leave the setting out, or train without --from"
            )


def _encoder_overrides(config: RunConfig) -> list[str]:
    """Return the settings of the encoder as ``section.key=value`` strings."""
    own = dataclasses.asdict(config.encoder)
    options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in own.pop("options").items())
    plain = [f"encoder.{key}={json.dumps(value)}" for key, value in own.items()]
    return [*plain, f"encoder.options={{{options}}}"]


def _shape_overrides(config: RunConfig) -> list[str]:
    """Return the settings that the weights of heads and labels fit, as strings."""
    model = {key: value for key, value in to_json(config)["model"].items() if key not in FREE}
    plain = [f"model.{key}={json.dumps(value)}" for key, value in model.items()]
    return [*plain, *(f"data.{k}={getattr(config.data, k)}" for k in ("max_tokens", "chunks"))]


def _stage2_epochs(config: RunConfig) -> list[int]:
    epochs = config.stage2.get("train", {}).get("epochs")
    return [] if not config.stage2 else [config.train.epochs if epochs is None else epochs]
