"""``train``: from a data set to a run folder, from the start or from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from umpteen.build import build_losses, stages
from umpteen.compute.precision import choose_device
from umpteen.compute.sharding import Ranks, start_ranks
from umpteen.config import RunConfig
from umpteen.config_rules import refused_on_ranks
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError, RunError
from umpteen.files import read_json
from umpteen.metrics import parse_all
from umpteen.predictor import Predictor
from umpteen.runs import RunFolder
from umpteen.settings import from_mapping
from umpteen.training.fit_ensemble import fit_ensemble_of_run
from umpteen.training.prepare import (
    default_cache,
    with_configured_propensity,
)
from umpteen.training.reporters import Reporter
from umpteen.training.resolve import ResolvedConfig, resolve_config
from umpteen.training.session import Session
from umpteen.training.throughput import measure_throughput


def train(
    data: Dataset,
    *,
    out: str | Path,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    dataset: str | None = None,
    config: RunConfig | None = None,
    device: str = "auto",
    resume: bool = False,
    reporters: Sequence[Reporter] = (),
    cache: str | Path | None = None,
    ranks: Ranks | None = None,
    minutes: float | None = None,
) -> Predictor:
    """Train a model and write a run folder.

    In a process that torchrun started, train with the others of its job: all of them must make the
    same call and see the same files. The first one writes and reports.

    Args:
        data: The data; only its train and validation splits are read. Where it has no validation
            split, a part of train is held out.
        out: The run folder to make, or with ``resume`` to continue.
        preset: A preset's name or a TOML file. Left out, rules choose the settings by the data
            (see ``choosing/rules.py``).
        overrides: ``section.key=value`` strings laid over the preset.
        dataset: A well-known data set, such as ``lf-amazontitles-131k``: its settings for the
            preset and its propensity constants are taken.
        config: The settings themselves, instead of preset, overrides and dataset.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Continue the run in ``out`` from its newest checkpoint, with its own settings.
        reporters: Told of progress.
        cache: Where token stores are kept; by default the user's cache folder.
        ranks: From ``start_ranks``, where the caller has started them.
        minutes: A budget: a short trial measures the time of a step, and as many epochs are
            trained as fit it, up to those of the settings.

    Returns:
        A predictor with the best model by validation (the last one without validation).

    Raises:
        ConfigError: If a setting is wrong.
        RunError: If ``out`` is in the way, or cannot be resumed.
        TrainingStopped: If the loss is no longer finite, or memory ran out.
        RankLost: If another rank of the job has ended.
    """
    started = time.monotonic()
    folder = RunFolder(out)
    ranks = start_ranks(choose_device(device)) if ranks is None else ranks
    if ranks.json_from_first(bool(ranks.restarts) and folder.config.is_file()):
        # torchrun repeats the command it was given; what the first try began is continued.
        resume, config, preset, overrides, dataset = True, None, None, (), None
        minutes = None
    cache = Path(cache) if cache else default_cache()
    log = _log_to(reporters if ranks.first else ())
    if resume:
        given = (config, preset, dataset, minutes)
        if overrides or any(value is not None for value in given):
            raise ConfigError(
                "a resumed run keeps its own settings; leave preset, --set, --text, --dataset and "
                "--minutes out"
            )
        resolved = _read_resolved(folder)
    else:
        folder.require_empty()
        resolved = resolve_config(
            data,
            preset=preset,
            overrides=overrides,
            dataset=dataset,
            minutes=minutes,
            config=config,
        )
        ranks.wait()  # until all have seen that the folder is empty
        for line in resolved.reasons:
            log(line)
    _require_known_names(resolved.config, ranks, minutes=minutes)
    data = with_configured_propensity(data, resolved.config)
    if minutes is not None and "train.epochs" not in resolved.user_keys:
        resolved = _fit_to_budget(
            resolved, data, minutes, started, device=device, cache=cache, log=log
        )
    settings = resolved.config
    session = Session(folder, settings, device=device, reporters=list(reporters), ranks=ranks)
    session.reasons = resolved.reasons
    try:
        session.set_up(data, resume=resume, cache=cache)
    except Exception:
        if not resume and ranks.first:
            folder.take_back_settings()
        raise
    session.train()
    if ranks.first:
        fit_ensemble_of_run(folder, data, settings, device=device, log=session.log, cache=cache)
    ranks.wait()  # until the first has written what all read now
    return Predictor.load(folder.path, device=device)


def _log_to(reporters: Sequence[Reporter]) -> Callable[[str], None]:
    def log(text: str) -> None:
        for reporter in reporters:
            reporter.log(text)

    return log


def _fit_to_budget(
    resolved: ResolvedConfig,
    data: Dataset,
    minutes: float,
    started: float,
    *,
    device: str,
    cache: Path,
    log: Callable[[str], None],
) -> ResolvedConfig:
    """Return the settings with as many epochs as fit the minutes since the start."""
    log("Measuring the time of a step")
    throughput = measure_throughput(data, resolved.config, device=device, cache=cache)
    fitted = resolved.within(throughput, minutes=minutes, spent=time.monotonic() - started)
    log(fitted.reasons[-1])
    return fitted


def _read_resolved(folder: RunFolder) -> ResolvedConfig:
    """Read the settings of a run that is resumed."""
    settings = from_mapping(folder.read_settings(), source=str(folder.config))
    written = read_json(folder.config, error=RunError)
    return ResolvedConfig(settings, tuple(written.get("chosen", ())))


def _require_known_names(settings: RunConfig, ranks: Ranks, *, minutes: float | None) -> None:
    """Check names of settings before texts are tokenized."""
    for stage in stages(settings):
        build_losses(stage.loss)
    parse_all([settings.validation.select])
    if minutes is not None and settings.stage2:
        raise ConfigError(
            "a run of two stages takes no --minutes; give train.epochs and stage2.train.epochs"
        )
    if ranks.world > 1:
        if minutes is not None:
            raise ConfigError(
                "--minutes works with one rank only; find the settings with one rank "
                "and give them with --preset RUN/config.json"
            )
        refused = refused_on_ranks(settings)
        if refused is not None:
            raise ConfigError(refused)
