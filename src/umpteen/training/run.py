"""``train``: from a data set to a run folder, from the start or from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from umpteen.compute.distributed.sharding import Ranks, start_ranks
from umpteen.compute.precision import choose_device
from umpteen.config.checks import refused_on_ranks
from umpteen.config.loading import stages
from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError
from umpteen.files import disk_errors
from umpteen.metrics import parse_all
from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder
from umpteen.training.factories import build_losses
from umpteen.training.fit_ensemble import fit_ensemble_of_run
from umpteen.training.lock import training_lock
from umpteen.training.prepare import (
    default_cache,
    with_configured_propensity,
)
from umpteen.training.reporters import Reporter
from umpteen.training.resolve import ResolvedConfig, resolve_config
from umpteen.training.resume import read_resolved, require_same_settings
from umpteen.training.session import Session
from umpteen.training.throughput import measure_throughput
from umpteen.training.time_budget import TimeBudget


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
    started: float | None = None,
) -> Predictor:
    """Train a model and write a run folder.

    In a process that torchrun started, train with the others of its job: all of them must make the
    same call and see the same files. The first one writes and reports.

    Args:
        data: The data; only its train and validation splits are read. Where it has no validation
            split, a part of train is held out.
        out: The run folder to make, or with ``resume`` to continue.
        preset: A preset's name or a TOML file. Left out, rules choose the settings by the data
            (see ``config/default_rules.py``).
        overrides: ``section.key=value`` strings laid over the preset.
        dataset: A well-known data set, such as ``lf-amazontitles-131k``: its settings for the
            preset and its propensity constants are taken.
        config: The settings themselves, instead of preset, overrides and dataset.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Continue the run in ``out`` from its newest checkpoint, with its own settings.
            Settings that are given as well must agree with them.
        reporters: Told of progress.
        cache: Where token stores are kept; by default the user's cache folder.
        ranks: From ``start_ranks``, where the caller has started them.
        minutes: A budget for everything: a short trial measures the time of a step, as many
            epochs or steps are trained as fit, and the ensemble is fitted in what is left.
        started: When the budget began, in ``time.monotonic``; now, by default.

    Returns:
        A predictor with the best model by validation (the last one without validation).

    Raises:
        ConfigError: If a setting is wrong, or differs from that of a run to resume.
        RunError: If ``out`` is in the way, or cannot be resumed.
        NotWritten: If the disk is full; the run can be resumed.
        TrainingStopped: If the loss is no longer finite, or memory ran out.
        RankLost: If another rank of the job has ended.
    """
    started = time.monotonic() if started is None else started
    folder = RunFolder(out)
    ranks = start_ranks(choose_device(device)) if ranks is None else ranks
    if ranks.json_from_first(bool(ranks.restarts) and folder.config.is_file()):
        # torchrun repeats the command it was given; what the first try began is continued.
        resume, config, preset, overrides, dataset = True, None, None, (), None
        minutes = None
    with (
        training_lock(folder, ranks, resume=resume),
        disk_errors(folder.path, advice="continue with --resume"),
    ):
        return _train(
            folder,
            data,
            preset=preset,
            overrides=overrides,
            dataset=dataset,
            config=config,
            device=device,
            resume=resume,
            reporters=reporters,
            cache=Path(cache) if cache else default_cache(),
            ranks=ranks,
            minutes=minutes,
            started=started,
        )


def _train(
    folder: RunFolder,
    data: Dataset,
    *,
    preset: str | None,
    overrides: Sequence[str],
    dataset: str | None,
    config: RunConfig | None,
    device: str,
    resume: bool,
    reporters: Sequence[Reporter],
    cache: Path,
    ranks: Ranks,
    minutes: float | None,
    started: float,
) -> Predictor:
    log = _log_to(reporters if ranks.first else ())
    if resume:
        resolved = read_resolved(folder)
        require_same_settings(
            folder,
            resolved,
            preset=preset,
            overrides=overrides,
            dataset=dataset,
            config=config,
            minutes=minutes,
        )
        minutes = None  # its epochs are settled
    else:
        resolved = resolve_config(
            data,
            preset=preset,
            overrides=overrides,
            dataset=dataset,
            minutes=minutes,
            config=config,
        )
        for line in resolved.reasons:
            log(line)
    _require_known_names(resolved.config, ranks, minutes=minutes)
    data = with_configured_propensity(data, resolved.config)
    budget = None if minutes is None else TimeBudget(minutes, started)
    if budget is not None and "train.epochs" not in resolved.user_keys:
        resolved = _fit_to_budget(resolved, data, budget, device=device, cache=cache, log=log)
    settings = resolved.config
    session = Session(folder, settings, device=device, reporters=list(reporters), ranks=ranks)
    session.resolved = resolved
    if budget is not None and "train.epochs" not in resolved.user_keys:
        session.deadline = budget.steps_deadline(settings)
    try:
        session.set_up(data, resume=resume, cache=cache)
    except Exception:
        if not resume and ranks.first:
            folder.take_back_settings()
        raise
    trained = time.monotonic()
    session.train()
    if ranks.first:
        own_seconds = "ensemble.seconds" in resolved.user_keys
        fit_ensemble_of_run(
            folder,
            data,
            session.settings,
            device=device,
            log=session.log,
            cache=cache,
            until=None if budget is None or own_seconds else budget.until,
            training_seconds=time.monotonic() - trained,
        )
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
    budget: TimeBudget,
    *,
    device: str,
    cache: Path,
    log: Callable[[str], None],
) -> ResolvedConfig:
    """Return the settings with as many epochs as fit the minutes since the start."""
    throughput = measure_throughput(
        data, resolved.config, device=device, cache=cache, seconds=budget.trial_seconds, log=log
    )
    fitted = resolved.within(throughput, minutes=budget.minutes, spent=budget.spent())
    log(fitted.reasons[-1])
    return fitted


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
