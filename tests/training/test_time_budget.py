"""A time budget: epochs or steps that fit it, and a run that turns out slower than measured."""

import dataclasses
import json

import pytest
from small_runs import SETTINGS, StopAt, fit, outcome, steps

from umpteen.config.loading import load_config
from umpteen.training import time_budget
from umpteen.training.run import train
from umpteen.training.throughput import Throughput
from umpteen.training.time_budget import ROOM, StepsDeadline, TimeBudget, within_budget

CONFIG = load_config("unidec-frugal")  # 30 epochs, a refresh every 5, a validation every epoch
MEASURED = Throughput(step=0.1, steps=50, refresh=10.0, validation=1.0)


def planned(seconds, *, ensemble=30.0, throughput=MEASURED, **options):
    """Settings for a run with these seconds for steps and this many for the ensemble."""
    minutes = (seconds + ensemble + 45.0) / ROOM / 60
    left = max(1e-9, seconds + ensemble)
    # Of the time that is left, the ensemble gets the share it has of all.
    own = "ensemble.seconds" in options.get("user_keys", ())
    part = dataclasses.replace(
        CONFIG.ensemble, seconds=ensemble * (1 if own else (left + 45.0) / left) or 1.0
    )
    part = part if ensemble else dataclasses.replace(part, enabled="off")
    config = dataclasses.replace(CONFIG, ensemble=part)
    found = within_budget(config, throughput, minutes=minutes, spent=45.0, **options)
    return found.config, found.reason, found.reserved


def cost(epochs):
    """5 s of steps and 1 s of validation an epoch, 10 s of refresh every five."""
    return 6 * epochs + 10 * -(-epochs // 5)


@pytest.mark.parametrize("epochs", [3, 5, 6, 17, 30])
def test_epochs_are_those_that_fit(epochs):
    found, reason, _ = planned(cost(epochs) + 0.5)
    assert (found.train.epochs, found.train.max_steps) == (epochs, 0)
    assert reason.startswith(f"train.epochs {epochs}: 100 ms a step, 50 steps an epoch")
    less, *_ = planned(cost(epochs) - 0.5)
    assert less.train.epochs == max(epochs - 1, 3)


@pytest.mark.parametrize("seconds", [20.5, 23.0, 27.0])
def test_where_few_epochs_fit_steps_are_counted(seconds):
    found, reason, _ = planned(seconds)
    n = found.train.max_steps
    assert reason.startswith(f"train.max_steps {n}:")
    assert found.train.epochs == -(-n // 50)
    # A refresh and a validation of each epoch begun; one step more would not fit.
    taken = 10 + found.train.epochs * 1.0 + 0.1 * n
    assert seconds - 1.2 <= taken <= seconds + 1e-9


def test_a_refresh_that_takes_most_of_the_time_is_left_out():
    found, *_ = planned(11.55, throughput=dataclasses.replace(MEASURED, refresh=100.0))
    assert found.batches.first_refresh == 3  # in an epoch that is not reached
    assert found.train.epochs == 2
    assert found.train.max_steps == 95


def test_long_validations_skip_epochs():
    slow = dataclasses.replace(MEASURED, validation=3.0)
    found, *_ = planned(cost(30), throughput=slow)
    assert found.validation.every_epochs == 3  # 3 s of 1.25 s an epoch
    own, *_ = planned(cost(30), throughput=slow, user_keys={"validation.every_epochs"})
    assert own.validation.every_epochs == 1


def test_without_any_time_one_step_is_taken():
    found, *_ = planned(-40.0)
    assert (found.train.epochs, found.train.max_steps) == (1, 1)


def test_the_ensemble_gets_what_all_the_epochs_leave_over():
    found, reason, _ = planned(cost(30) + 100.0)
    assert found.ensemble.seconds == pytest.approx(130.0)
    assert "up to 130 s are for the ensemble" in reason
    own, *_ = planned(cost(30) + 100.0, user_keys={"ensemble.seconds"})
    assert own.ensemble.seconds == 30.0
    short, *_ = planned(cost(20) + 0.1)
    assert short.ensemble.seconds == pytest.approx(30.0)


def test_steps_may_use_what_all_the_epochs_leave_over():
    assert planned(cost(30) + 100.0)[2] == pytest.approx(30.0)
    assert planned(cost(20))[2] == pytest.approx(30.0)
    assert planned(cost(20), ensemble=0.0)[2] == pytest.approx(0.0)
    assert planned(260.0, cross_validated=True)[2] == pytest.approx(290.0 - 100.0)


def test_the_ensemble_reserves_no_more_than_it_needs():
    quick = dataclasses.replace(MEASURED, ensemble=12.0)
    found, _, reserved = planned(cost(20) - 17.9, throughput=quick)
    assert reserved == pytest.approx(12.0)
    assert found.train.epochs == 20
    folded = planned(260.0, throughput=quick, cross_validated=True)
    assert folded[2] == pytest.approx(290.0 - 100.0)


def test_models_of_folds_are_planned_for():
    alone, *_ = planned(cost(20) + 0.1)
    folded, *_ = planned(cost(20) + 0.1, cross_validated=True)
    assert alone.train.epochs == 20
    assert cost(folded.train.epochs) <= (cost(20) + 0.1) / 2.6 < cost(folded.train.epochs + 1)
    off, *_ = planned(cost(20) + 0.1, ensemble=0.0, cross_validated=True)
    assert off.train.epochs == 20


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(time_budget.time, "monotonic", lambda: self.now)


def test_a_run_as_fast_as_measured_is_left_alone(monkeypatch):
    clock = Clock(monkeypatch)
    deadline = StepsDeadline(100.0, tolerance=3.0)
    for step in range(1, 1000):
        clock.now = 0.1 * step
        assert deadline.fitting(step, 1000, epoch_done=step % 100 == 0) is None


def test_a_slower_run_ends_earlier_and_in_time(monkeypatch):
    clock = Clock(monkeypatch)
    deadline, last, step = StepsDeadline(100.0, tolerance=3.0), 1000, 0
    while step < last:
        step += 1
        clock.now += 0.1 if step < 300 else 0.25
        last = deadline.fitting(step, last, epoch_done=step % 100 == 0) or last
    assert 95 <= clock.now <= 105
    assert 500 < last < 600


def test_after_an_epoch_no_further_step_is_needed(monkeypatch):
    clock = Clock(monkeypatch)
    deadline = StepsDeadline(100.0, tolerance=3.0)
    assert deadline.fitting(1, 1000, epoch_done=False) is None
    clock.now = 200.0
    assert deadline.fitting(50, 1000, epoch_done=True) == 50
    assert deadline.fitting(51, 1000, epoch_done=False) == 52
    assert deadline.fitting(1000, 1000, epoch_done=True) is None


def test_steps_end_before_the_time_of_the_ensemble(monkeypatch):
    budget = TimeBudget(10.0, started=1000.0)
    Clock(monkeypatch).now = 1100.0
    deadline = budget.steps_deadline(60.0)
    assert deadline.until == pytest.approx(1000.0 + ROOM * 600 - 60)


def test_the_time_used_is_said_and_why_it_was_less(monkeypatch):
    clock, budget = Clock(monkeypatch), TimeBudget(1.0, started=100.0)
    clock.now = 157.0
    assert budget.used(5.0, 20.0, why_early="x") == (
        "Used 57 of 60 s: 5 s before the first step, 15 s of training, 37 s for the ensemble"
    )
    clock.now = 140.0
    assert budget.used(5.0, 20.0, why_early="all 30 epochs are trained").endswith(
        "20 s for the ensemble. Ended early: all 30 epochs are trained"
    )


# -- runs that end in the midst of an epoch ----------------------------------------------------


@pytest.fixture(scope="module")
def ended(tiny_data, tmp_path_factory):
    """Five steps: two epochs of two and a half of the third."""
    run = tmp_path_factory.mktemp("ended") / "run"
    fit(tiny_data, run, "train.max_steps=5", "train.epochs=3")
    return run


def test_a_run_ends_after_so_many_steps_with_a_model(ended):
    taken = steps(ended)
    assert [step["step"] for step in taken] == [1, 2, 3, 4, 5]
    assert taken[-1]["lr_factor"] == pytest.approx(0.0, abs=1e-6)
    assert json.loads((ended / "models.json").read_text())["last"] == "models/epoch-0003"
    history = json.loads((ended / "metrics.json").read_text())["validation"]
    assert [entry["epoch"] for entry in history] == [1, 2, 3]


@pytest.mark.parametrize("at", [2, 5])
def test_it_can_be_resumed_to_the_same_result(at, ended, tiny_data, tmp_path):
    options = ("train.max_steps=5", "train.epochs=3", "train.checkpoint_seconds=0")
    with pytest.raises(KeyboardInterrupt):
        fit(tiny_data, tmp_path / "run", *options, reporters=[StopAt(at)])
    fit(tiny_data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(ended)


class Slow:
    """A deadline that ends the run after a given step."""

    def __init__(self, last):
        self.last, self.over = last, False

    def fitting(self, step, last_step, *, epoch_done):
        if self.over or step >= last_step:
            return None
        self.over = True
        return self.last


def test_a_run_cut_short_says_so_and_is_whole(monkeypatch, tiny_data, tmp_path):
    said = []

    class Reporter(StopAt):
        def log(self, text):
            said.append(text)

    monkeypatch.setattr(TimeBudget, "steps_deadline", lambda self, config: Slow(3))
    changes = [c for c in SETTINGS if not c.startswith("train.epochs")]
    train(
        tiny_data,
        out=tmp_path / "run",
        overrides=changes,
        minutes=30,
        device="cpu",
        reporters=[Reporter(0)],
    )
    assert any(line.startswith("Slower than measured: ending after 3 steps") for line in said)
    assert said[-1].endswith("Ended early: all 3 planned steps are taken")  # 30 minutes are long
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written["config"]["train"]["max_steps"] == 3
    assert written["config"]["train"]["epochs"] == 2
    assert len(steps(tmp_path / "run")) == 3
    before = outcome(tmp_path / "run")
    train(tiny_data, out=tmp_path / "run", overrides=changes, minutes=30, device="cpu", resume=True)
    assert outcome(tmp_path / "run") == before
