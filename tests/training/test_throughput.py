"""Epochs that fit a budget, fixed before the first step."""

import dataclasses
import json
import math

import pytest
import torch
from small_runs import SETTINGS, StopAt, fit, outcome

from umpteen.compute.threads import cpu_threads
from umpteen.config.loading import load_config
from umpteen.errors import ConfigError
from umpteen.training import throughput
from umpteen.training.prepare import training_splits
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.run import train
from umpteen.training.throughput import measure_throughput


@pytest.mark.parametrize("changes", [(), ("train.epochs=1", "validation.share=0")])
def test_the_trial_measures_every_part(changes, tiny_data, tmp_path):
    config = resolve_open_settings(load_config(overrides=[*SETTINGS, *changes]))
    found = measure_throughput(tiny_data, config, device="cpu", cache=tmp_path)
    assert found.step > 0
    assert found.steps == (4 if changes else 2)
    assert (found.validation > 0) == (not changes)


def test_the_time_of_the_ensemble_is_estimated_for_few_texts(monkeypatch, tiny_data):
    config = load_config(overrides=["data.text=title"])
    data = training_splits(tiny_data, config)
    few = throughput.ensemble_seconds(data, config)
    assert 2.0 < few < 1000.0
    lexical = dataclasses.replace(config.ensemble, lexical=False)
    off = dataclasses.replace(config, ensemble=lexical)
    assert throughput.ensemble_seconds(data, off) == math.inf
    alone = dataclasses.replace(data, splits={"train": data["train"]})
    assert throughput.ensemble_seconds(alone, config) == math.inf
    monkeypatch.setattr(throughput, "MANY_TEXTS", len(data["train"]) - 1)
    assert throughput.ensemble_seconds(data, config) == math.inf


def test_parts_are_measured_with_the_threads_of_the_run(monkeypatch, tiny_data, tmp_path):
    used = {}
    for name in ("build_refresher", "_steps"):
        own = getattr(throughput, name)

        def spy(*given, own=own, name=name):
            used[name] = torch.get_num_threads()
            return own(*given)

        monkeypatch.setattr(throughput, name, spy)
    config = resolve_open_settings(load_config(overrides=SETTINGS))
    with cpu_threads(2):
        measure_throughput(tiny_data, config, device="cpu", cache=tmp_path)
    assert used == {"build_refresher": 2, "_steps": 1}


def test_a_trial_on_some_texts_stands_for_all(monkeypatch, tiny_data, tmp_path):
    config = resolve_open_settings(load_config(overrides=[*SETTINGS, "batches.size=4"]))
    whole = measure_throughput(tiny_data, config, device="cpu", cache=tmp_path)
    monkeypatch.setattr(throughput, "SAMPLE", 26)
    some = measure_throughput(tiny_data, config, device="cpu", cache=tmp_path)
    assert abs(some.steps - whole.steps) <= 1
    assert some.refresh > 0


def test_a_run_with_a_budget_keeps_its_epochs_when_it_is_resumed(tiny_data, tmp_path):
    changes = [c for c in SETTINGS if not c.startswith("train.epochs")]
    options = {"overrides": [*changes, "train.checkpoint_seconds=0"], "device": "cpu"}
    reporter = StopAt(1)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_data, out=tmp_path / "a", minutes=1e-6, reporters=[reporter], **options)
    settings = json.loads((tmp_path / "a" / "config.json").read_text())
    assert settings["config"]["train"]["max_steps"] == 1  # the least; the time was over before
    assert settings["chosen"][-1].startswith("train.max_steps 1:")
    fit(tiny_data, tmp_path / "a", resume=True)
    # Whether the first refresh comes later depends on the machine's speed.
    later = settings["config"]["batches"]["first_refresh"]
    same = ["train.epochs=1", "train.max_steps=1", f"batches.first_refresh={later}"]
    again = {**options, "overrides": [*options["overrides"], *same]}
    train(tiny_data, out=tmp_path / "b", minutes=1e-6, **again)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


@pytest.mark.parametrize("minutes", [0.0, -1.0])
def test_a_budget_must_be_some_time(minutes, tiny_data, tmp_path):
    with pytest.raises(ConfigError, match="more than 0 minutes"):
        train(tiny_data, out=tmp_path / "run", minutes=minutes, device="cpu")
    assert not (tmp_path / "run").exists()
