"""A time budget: epochs or steps that fit it, and a run that is slower than measured cut short."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection
from dataclasses import dataclass

from umpteen.config.schema import RunConfig
from umpteen.training.throughput import TRIAL_SHARE, Throughput

ROOM = 0.95
"""Of a budget that is planned for; the rest is for saving and for a machine that is not alone."""
SLACK = 0.05
"""Of a budget, by which a fold or a variant of the ensemble may end later than planned."""
EARLY = 0.9
"""Of a budget, below which a run says why it took no longer."""
FEW_EPOCHS = 3
"""Below this many epochs, steps are counted instead: whole epochs would leave much time over."""
FOLDS_PLANNED = 2
"""Models of folds that are planned for where the ensemble is cross-validated."""
FOLD_SHARE = 0.8
"""Time of a fold's model, as a share of the run's own: it has fewer texts."""
MIN_STEPS = 20
"""Steps that are taken before the time of a step is relied on."""
VALIDATION_SHARE = 0.25
"""Of the time of steps, for validations; where they take longer, epochs are skipped."""
TOLERANCE = 0.03
"""Share of a budget by which steps may be predicted to end late before they are reduced."""


@dataclass(frozen=True)
class TimeBudget:
    """The time a run may take, from the start of the command."""

    minutes: float
    started: float
    """In ``time.monotonic``."""

    @property
    def seconds(self) -> float:
        """The whole budget."""
        return 60.0 * self.minutes

    @property
    def until(self) -> float:
        """When everything that is planned should be done."""
        return self.started + ROOM * self.seconds

    @property
    def trial_seconds(self) -> float:
        """Time for the steps of a trial."""
        return TRIAL_SHARE * self.seconds

    def steps_deadline(self, reserved: float) -> StepsDeadline:
        """Return when steps must be done, so that these seconds are left for the ensemble."""
        now = time.monotonic()
        steps_until = max(self.until - reserved, now + 0.3 * max(0.0, self.until - now))
        return StepsDeadline(steps_until, TOLERANCE * self.seconds)

    def spent(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.started

    def used(self, trained_from: float, trained_until: float, *, why_early: str) -> str:
        """Return a sentence about the time a run took."""
        spent = self.spent()
        line = (
            f"Used {spent:.0f} of {self.seconds:.0f} s: {trained_from:.0f} s before the first step,"
            f" {trained_until - trained_from:.0f} s of training, "
            f"{spent - trained_until:.0f} s for the ensemble"
        )
        return line if spent >= EARLY * self.seconds else f"{line}. Ended early: {why_early}"


@dataclass(frozen=True)
class BudgetedSettings:
    """Settings for a time budget."""

    config: RunConfig
    reason: str
    reserved: float
    """Seconds that steps must leave for the ensemble, with the models of folds. It may take more
    where steps need less."""


def within_budget(
    config: RunConfig,
    throughput: Throughput,
    *,
    minutes: float,
    spent: float,
    user_keys: Collection[str] = (),
    cross_validated: bool = False,
) -> BudgetedSettings:
    """Return the settings with as many epochs, or steps, as fit a budget.

    Args:
        config: With the most epochs that are wanted.
        throughput: Of this machine.
        minutes: The whole budget; what fitting the ensemble may take is set aside.
        spent: Seconds of it that are gone.
        user_keys: Keys that the user has set. Unless ``ensemble.seconds`` is among them, the
            ensemble gets what all the wanted epochs leave over.
        cross_validated: Whether models of folds are trained for the ensemble.

    Returns:
        Settings whose learning rates come down to zero within the budget.
    """
    if "validation.every_epochs" not in user_keys:
        config = _spaced_validations(config, throughput)
    fits_ensemble = config.ensemble.enabled != "off"
    left = max(0.0, ROOM * 60 * minutes - spent)
    aside = config.ensemble.seconds if fits_ensemble else 0.0
    if "ensemble.seconds" not in user_keys:  # what is gone is gone for both
        aside *= left / (ROOM * 60 * minutes)
        if not cross_validated:  # models of folds are trained in that time too
            aside = min(aside, throughput.ensemble)
    planned = min(FOLDS_PLANNED, config.ensemble.folds)
    folds = FOLD_SHARE * planned if fits_ensemble and cross_validated else 0.0
    for_steps = max(0.0, left - aside) / (1.0 + folds)
    limited = _limited(config, throughput, for_steps)
    whole = limited.train.epochs == config.train.epochs and not limited.train.max_steps
    if aside and whole and "ensemble.seconds" not in user_keys:
        aside = max(aside, left - _seconds(limited, throughput, limited.train.epochs))
    if fits_ensemble:
        aside = max(1.0, aside)
        limited = dataclasses.replace(
            limited, ensemble=dataclasses.replace(limited.ensemble, seconds=aside)
        )
    train = limited.train
    name = "train.max_steps" if train.max_steps else "train.epochs"
    reason = (
        f"{name} {train.max_steps or train.epochs:,}: {1000 * throughput.step:.0f} ms a step, "
        f"{throughput.steps:,} steps an epoch, {throughput.refresh:.1f} s a refresh, "
        f"{throughput.validation:.1f} s a validation; of {60 * minutes:.0f} s, {spent:.0f} s are "
        f"gone, and up to {aside:.0f} s are for the ensemble"
    )
    return BudgetedSettings(limited, reason, left - for_steps)


def _spaced_validations(config: RunConfig, throughput: Throughput) -> RunConfig:
    """Return the settings with as many epochs between validations as keep to their share."""
    epoch = VALIDATION_SHARE * throughput.steps * throughput.step
    every = math.ceil(throughput.validation / max(epoch, 1e-9))
    if every <= config.validation.every_epochs:
        return config
    part = dataclasses.replace(config.validation, every_epochs=min(every, config.train.epochs))
    return dataclasses.replace(config, validation=part)


def _limited(config: RunConfig, throughput: Throughput, seconds: float) -> RunConfig:
    """Return the settings with as many epochs as fit, or steps where few do."""
    most = config.train.epochs
    fitting = _fitting(config, throughput, seconds)
    if fitting >= min(FEW_EPOCHS, most):
        return dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=fitting))
    if not fitting and 2 * throughput.refresh > seconds:
        # The first epochs can do without: their batches are then random.
        batches = dataclasses.replace(config.batches, first_refresh=FEW_EPOCHS)
        config = dataclasses.replace(config, batches=batches)
        fitting = min(FEW_EPOCHS - 1, _fitting(config, throughput, seconds))
    fixed = _seconds(config, throughput, fitting + 1) - (fitting + 1) * throughput.steps * (
        throughput.step
    )
    steps = int(max(0.0, seconds - fixed) / max(throughput.step, 1e-9))
    steps = max(1, min(steps, (fitting + 1) * throughput.steps))
    epochs = max(1, math.ceil(steps / max(1, throughput.steps)))
    train = dataclasses.replace(config.train, epochs=epochs, max_steps=steps)
    return dataclasses.replace(config, train=train)


def _fitting(config: RunConfig, throughput: Throughput, seconds: float) -> int:
    """Return the most whole epochs that fit; 0 where none does."""
    tried = range(config.train.epochs, 0, -1)
    return next((n for n in tried if _seconds(config, throughput, n) <= seconds), 0)


def _seconds(config: RunConfig, throughput: Throughput, epochs: float) -> float:
    return throughput.run(
        epochs,
        refresh_epochs=config.batches.refresh_epochs,
        every_epochs=config.validation.every_epochs,
        first_refresh=config.batches.first_refresh,
    )


@dataclass
class StepsDeadline:
    """Reduces the steps of a run that turns out slower than the trial.

    The time of a step is measured over the run so far, so that refreshes, validations and
    checkpoints count.

    Args:
        until: When the steps should be done, in ``time.monotonic``.
        tolerance: Seconds by which they may be predicted to end late.
    """

    until: float
    tolerance: float
    _since: float | None = None
    _first: int = 0

    def fitting(self, step: int, last_step: int, *, epoch_done: bool) -> int | None:
        """Return the step to end at, where the run would end too late; None where it would not.

        Returns:
            The step, which may be the one just taken after an epoch.
        """
        now = time.monotonic()
        if self._since is None:
            self._since, self._first = now, step
            return None
        taken = step - self._first
        # Few steps say little; but where the time is over, it is over.
        if step >= last_step or (taken < MIN_STEPS and now < self.until):
            return None
        each = (now - self._since) / max(1, taken)
        if now + (last_step - step) * each <= self.until + self.tolerance:
            return None
        further = int(max(0.0, self.until - now) / max(each, 1e-9))
        return step + max(0 if epoch_done else 1, further)
