"""Epochs that fit a budget, fixed before the first step."""

import dataclasses
import json

import pytest
from small_runs import SETTINGS, StopAt, fit, outcome

from umpteen.build import load_config, resolve_open_settings
from umpteen.errors import ConfigError
from umpteen.training.run import train
from umpteen.training.throughput import Throughput, epochs_within, measure_throughput, within_budget

CONFIG = load_config("unidec-frugal")  # 30 epochs, a refresh every 5, a validation every epoch
MEASURED = Throughput(
    step=0.1, steps=50, refresh=10.0, validation=1.0
)  # 5 + 2 + 1 seconds an epoch


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-3.0, 1), (1.0, 1), (15.9, 1), (16.1, 2), (80.1, 10), (1e6, 30)]
)
def test_epochs_are_those_that_fit(seconds, expected):
    assert epochs_within(MEASURED, CONFIG, seconds) == expected


def test_time_that_is_gone_and_time_for_the_fused_answer_are_set_aside():
    ensemble = dataclasses.replace(CONFIG.ensemble, seconds=30.0)
    config = dataclasses.replace(CONFIG, ensemble=ensemble)
    # 0.95 * 300 - 45 - 30 = 210 seconds for epochs of 8
    found, reason = within_budget(config, MEASURED, minutes=5.0, spent=45.0)
    assert found.train.epochs == 26
    assert reason.startswith("train.epochs 26: 100 ms a step, 50 steps an epoch")
    off = dataclasses.replace(config, ensemble=dataclasses.replace(ensemble, enabled="off"))
    assert within_budget(off, MEASURED, minutes=5.0, spent=45.0)[0].train.epochs == 30


def test_the_fused_answer_gets_what_all_the_epochs_leave_over():
    ensemble = dataclasses.replace(CONFIG.ensemble, seconds=30.0)
    config = dataclasses.replace(CONFIG, ensemble=ensemble)
    # 0.95 * 600 - 45 = 525 seconds; 30 epochs of 8 leave 285
    found, reason = within_budget(config, MEASURED, minutes=10.0, spent=45.0)
    assert (found.train.epochs, found.ensemble.seconds) == (30, pytest.approx(285.0))
    assert "285 s kept for the ensemble" in reason
    user_keys, _ = within_budget(
        config, MEASURED, minutes=10.0, spent=45.0, user_keys={"ensemble.seconds"}
    )
    assert user_keys.ensemble.seconds == 30.0
    short, _ = within_budget(config, MEASURED, minutes=5.0, spent=45.0)
    assert short.ensemble.seconds == 30.0


@pytest.mark.parametrize("changes", [(), ("train.epochs=1", "validation.share=0")])
def test_the_trial_measures_every_part(changes, tiny_data, tmp_path):
    config = resolve_open_settings(load_config(overrides=[*SETTINGS, *changes]))
    throughput = measure_throughput(tiny_data, config, device="cpu", cache=tmp_path)
    assert throughput.step > 0
    assert throughput.steps == (4 if changes else 2)
    assert (throughput.validation > 0) == (not changes)


def test_a_run_with_a_budget_keeps_its_epochs_when_it_is_resumed(tiny_data, tmp_path):
    changes = [c for c in SETTINGS if not c.startswith("train.epochs")]
    options = {"overrides": [*changes, "train.checkpoint_seconds=0"], "device": "cpu"}
    reporter = StopAt(2)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_data, out=tmp_path / "a", minutes=0.001, reporters=[reporter], **options)
    settings = json.loads((tmp_path / "a" / "config.json").read_text())
    assert settings["config"]["train"]["epochs"] == 1  # the least; the time was over before
    assert settings["chosen"][-1].startswith("train.epochs 1:")
    fit(tiny_data, tmp_path / "a", resume=True)
    again = {**options, "overrides": [*options["overrides"], "train.epochs=1"]}
    train(tiny_data, out=tmp_path / "b", minutes=0.001, **again)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


@pytest.mark.parametrize("minutes", [0.0, -1.0])
def test_a_budget_must_be_some_time(minutes, tiny_data, tmp_path):
    with pytest.raises(ConfigError, match="more than 0 minutes"):
        train(tiny_data, out=tmp_path / "run", minutes=minutes, device="cpu")
    assert not (tmp_path / "run").exists()
