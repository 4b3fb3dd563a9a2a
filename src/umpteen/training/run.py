"""``train``: from a data set to a run folder, from the start or from a checkpoint."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from umpteen.training.build_loop import BuildModel, build_untrained_model
from umpteen.training.factories import build_losses
from umpteen.training.fit_ensemble import fit_ensemble_of_run
from umpteen.training.fit_time import FitTime
from umpteen.training.lock import training_lock
from umpteen.training.prepare import default_cache, with_configured_propensity
from umpteen.training.reporters import Reporter, reporters_of_settings
from umpteen.training.rerank_stage import rerank_after_training
from umpteen.training.resolve import (
    GivenSettings,
    ResolvedConfig,
    log_settings,
    resolve_config,
    without_reporters,
)
from umpteen.training.resume import read_resolved, require_same_settings
from umpteen.training.session import Session
from umpteen.training.stage_log import StageLog
from umpteen.training.throughput import measure_throughput
from umpteen.training.time_budget import SLACK, TimeBudget
from umpteen.training.warm_settings import resolve_warm
from umpteen.training.warm_start import WarmStart, describe, require_origin, require_same_origin
from umpteen.types import Log


def train(
    data: Dataset | Callable[[], Dataset],
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
    log: StageLog | None = None,
    from_run: str | Path | None = None,
    changes: bool = True,
) -> Predictor:
    """Train, write a run folder, return its best model; ``umpteen.train`` describes the settings.

    ``data`` may be a function that reads it. ``ranks`` are from ``start_ranks``, where the caller
    has started them. ``started`` is when the budget began, in ``time.monotonic``. ``log`` takes the
    place of the reporters.
    """
    started = time.monotonic() if started is None else started
    folder = RunFolder(out)
    ranks = start_ranks(choose_device(device)) if ranks is None else ranks
    given = GivenSettings(preset, overrides, dataset, config, minutes)
    if ranks.json_from_first(bool(ranks.restarts) and folder.config.is_file()):
        # torchrun repeats the command it was given; what the first try began is continued.
        resume, given, from_run = True, GivenSettings(), None
    place: dict[str, Any] = {"device": device, "reporters": reporters, "ranks": ranks}
    place["cache"] = Path(cache) if cache else default_cache()
    with (
        training_lock(folder, ranks, resume=resume),
        disk_errors(folder.path, advice="continue with --resume"),
        log or StageLog(_log_to(reporters if ranks.first else ())) as log,
    ):
        read, origin = _read(data, log), (from_run, changes)
        return _train(
            folder, read, given, resume=resume, log=log, started=started, origin=origin, **place
        )


def _resolve(
    folder: RunFolder,
    data: Dataset,
    given: GivenSettings,
    origin: tuple[str | Path | None, bool],
    *,
    resume: bool,
    log: Log,
) -> ResolvedConfig:
    """Return the settings of a run: those of its folder, or from what is given and the data."""
    from_run, changes = origin
    if resume:
        resolved = read_resolved(folder)
        require_same_settings(folder, resolved, given)
        require_same_origin(folder, from_run)
        return without_reporters(resolved)
    resolve = resolve_config
    if from_run is not None:
        resolve = partial(resolve_warm, require_origin(from_run), changes=changes)
    resolved = resolve(data, given)
    log_settings(resolved.reasons, log)
    return without_reporters(resolved)


def _train(
    folder: RunFolder,
    data: Dataset,
    given: GivenSettings,
    *,
    device: str,
    resume: bool,
    reporters: Sequence[Reporter],
    log: StageLog,
    cache: Path,
    ranks: Ranks,
    started: float,
    origin: tuple[str | Path | None, bool],
) -> Predictor:
    if ranks.first:
        named = reporters_of_settings(given.preset, given.overrides, given.config, folder.path)
        reporters = [*reporters, *named]
        log.also(_log_to(named))
    resolved = _resolve(folder, data, given, origin, resume=resume, log=log)
    minutes = None if resume else given.minutes  # a resumed run keeps its number of epochs
    _require_known_names(resolved.config, ranks, minutes=minutes)
    data = with_configured_propensity(data, resolved.config)
    warm_start, data = _taken_over(
        folder, data, resolved.config, ranks, log, None if resume else origin
    )
    budget = None if minutes is None else TimeBudget(minutes, started)
    if budget is not None and "train.epochs" not in resolved.user_keys:
        build = build_untrained_model if warm_start is None else warm_start.build_model
        resolved = _fit_to_budget(
            resolved, data, budget, device=device, cache=cache, log=log, build=build
        )
    settings = resolved.config
    session = Session(
        folder, settings, device=device, reporters=list(reporters), ranks=ranks, log=log
    )
    session.resolved, session.warm_start = resolved, warm_start
    if budget is not None and "train.epochs" not in resolved.user_keys:
        session.deadline = budget.steps_deadline(resolved.reserved)
    try:
        session.set_up(data, resume=resume, cache=cache)
    except Exception:
        if not resume and ranks.first:
            folder.take_back_settings()
        raise
    trained = time.monotonic()
    session.train()
    last_step = time.monotonic()
    why_early = session.why_no_longer()
    took = last_step - trained
    left_out = _fit_last_stages(
        session, data, budget, device=device, cache=cache, training_seconds=took
    )
    why_early = ", and ".join([why_early, *left_out])
    if ranks.first and warm_start is not None:
        warm_start.changes.retire(folder, data.labels)
    if budget is not None:
        log(budget.used(trained - started, last_step - started, why_early=why_early))
    ranks.wait()  # until the first has written what all read now
    return Predictor.load(folder.path, device=device)


def _read(data: Dataset | Callable[[], Dataset], log: StageLog) -> Dataset:
    if isinstance(data, Dataset):
        return data
    with log.stage("Reading the data", kind="read", announced=False):
        return data()


def _fit_last_stages(
    session: Session,
    data: Dataset,
    budget: TimeBudget | None,
    *,
    device: str,
    cache: Path,
    training_seconds: float,
) -> list[str]:
    """Fit ensemble and re-ranking, in what a budget leaves; return what there was no time for.

    All ranks encode for the ensemble, and the first one does the rest.
    """
    limit, folder, settings, log = None, session.folder, session.settings, session.log
    if budget is not None and "ensemble.seconds" not in session.resolved.user_keys:
        limit = FitTime(budget.until, strict=True, slack=SLACK * budget.seconds)
    fit_ensemble_of_run(
        folder,
        data,
        settings,
        device=device,
        log=log,
        cache=cache,
        limit=limit,
        training_seconds=training_seconds,
        ranks=session.ranks,
    )
    if session.ranks.first:
        rerank_after_training(folder, data, settings, device=device, log=log, cache=cache)
    return [] if limit is None else limit.left_out


def _taken_over(
    folder: RunFolder,
    data: Dataset,
    settings: RunConfig,
    ranks: Ranks,
    log: Log,
    new: tuple[str | Path | None, bool] | None,
) -> tuple[WarmStart | None, Dataset]:
    """Return what a run takes over from another one, and the data with its changes.

    ``new`` is the other run and whether its changes count; None for a run that is resumed.
    """
    from_run, changes = new or (None, False)
    if ranks.first and from_run is not None:
        WarmStart.begin(folder, RunFolder(from_run), data, changes=changes)
    elif ranks.first and new is not None:  # a start that was killed may have left one
        shutil.rmtree(folder.origin, ignore_errors=True)
    ranks.wait()
    warm_start = WarmStart.of(folder)
    if warm_start is None:
        return None, data
    data = warm_start.changes.applied(data, settings.data.text)
    if from_run is not None:
        describe(warm_start, data, log)
    return warm_start, data


def _log_to(reporters: Sequence[Reporter]) -> Log:
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
    log: StageLog,
    build: BuildModel,
) -> ResolvedConfig:
    """Return the settings with as many epochs as fit the minutes since the start."""
    throughput = measure_throughput(
        data,
        resolved.config,
        device=device,
        cache=cache,
        seconds=budget.trial_seconds,
        log=log,
        build=build,
    )
    fitted = resolved.within(throughput, minutes=budget.minutes, spent=budget.spent())
    log_settings(fitted.reasons[-1:], log)
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
    if minutes is not None and settings.rerank.kind != "none":
        raise ConfigError(
            "--minutes and --rerank do not go together: re-ranking trains further models. Train "
            "with --minutes, then run umpteen rerank"
        )
    if ranks.exchanges:
        if minutes is not None:
            raise ConfigError(
                "--minutes works with one rank only; find the settings with one rank "
                "and give them with --preset RUN/config.json"
            )
        for stage in stages(settings):
            refused = refused_on_ranks(stage)
            if refused is not None:
                raise ConfigError(refused)
