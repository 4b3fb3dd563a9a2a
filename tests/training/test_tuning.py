"""The search before a run: judged by validation, stopped and resumed, and bounded in time."""

import json

import numpy as np
import pytest
from small_runs import SETTINGS, StopAt, outcome

from umpteen.build import load_config, resolve_open_settings
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError, TrainingStopped
from umpteen.predictor import Predictor
from umpteen.training import tuning
from umpteen.training.run import train
from umpteen.training.tuning import Tuning, candidates_of

FEW = [[], ["loss.dual_share=0.3"], ["train.lr_encoder=1e-5", "train.lr_heads=1e-5"]]
OPTIONS = {"overrides": [*SETTINGS, "train.epochs=3"], "device": "cpu"}


@pytest.fixture(autouse=True)
def _few_candidates(monkeypatch):
    monkeypatch.setattr(tuning, "candidates_of", lambda config, told: FEW)


def search_of(run):
    return json.loads((run / "tuning" / "tuning.json").read_text())


def test_trials_are_made_and_the_winner_is_trained_as_the_run(tiny_data, tmp_path):
    run, reporter = tmp_path / "run", StopAt(0)
    train(tiny_data, out=run, tune=5.0, reporters=[reporter], **OPTIONS)
    found = search_of(run)
    assert found["rungs"] == [1]
    assert [t["candidate"] for t in found["trials"]] == [0, 1, 2]
    values = [t["value"] for t in found["trials"]]
    best = FEW[int(np.argmax(values))]
    for number, value in enumerate(values, 1):
        history = json.loads((run / "tuning" / f"{number:02d}" / "metrics.json").read_text())
        assert value == max(entry["value"] for entry in history["validation"])
        assert any(f"trial {number}, 1 epochs" in line for line in reporter.said)
    train(tiny_data, out=tmp_path / "alone", **(OPTIONS | {"overrides": [*OPTIONS["overrides"],
          *best]}))  # fmt: skip
    assert outcome(run) == outcome(tmp_path / "alone")


def test_the_best_of_the_first_rung_are_trained_for_longer(tiny_data, tmp_path):
    train(tiny_data, out=tmp_path / "run", tune=5.0, overrides=[*SETTINGS, "train.epochs=4"],
          device="cpu")  # fmt: skip
    found = search_of(tmp_path / "run")
    assert found["rungs"] == [1, 2]
    assert [t["rung"] for t in found["trials"]] == [0, 0, 0, 1, 1]
    first = sorted(found["trials"][:3], key=lambda t: (-t["value"], t["candidate"]))
    assert [t["candidate"] for t in found["trials"][3:]] == [t["candidate"] for t in first[:2]]
    longer = json.loads((tmp_path / "run" / "tuning" / "04" / "config.json").read_text())
    assert longer["config"]["train"]["epochs"] == 2


def test_a_candidate_that_fails_has_lost_but_not_the_settings_themselves(
    tiny_data, tmp_path, monkeypatch
):
    bad = "loss.dual=small_runs:NanAfter"
    changes = [[], [bad], ["train.epoch=1"]]
    monkeypatch.setattr(tuning, "candidates_of", lambda config, told: changes)
    options = OPTIONS | {"overrides": [*OPTIONS["overrides"], "batches.size=4"]}
    train(tiny_data, out=tmp_path / "run", tune=5.0, **options)
    values = [t["value"] for t in search_of(tmp_path / "run")["trials"]]
    assert values[0] > 0
    assert values[1:] == [0.0, 0.0]
    with pytest.raises(TrainingStopped):
        train(tiny_data, out=tmp_path / "bad", tune=5.0,
              **(options | {"overrides": [*options["overrides"], bad]}))  # fmt: skip


def test_test_data_is_not_needed(tiny_data, tmp_path):
    without = Dataset(tiny_data.labels, {"train": tiny_data["train"]}, tiny_data.propensity)
    train(without, out=tmp_path / "run", tune=5.0, **OPTIONS)
    assert len(search_of(tmp_path / "run")["trials"]) == 3


def test_a_stopped_search_leaves_its_best_usable_and_goes_on(tiny_data, tmp_path, monkeypatch):
    run, reporter = tmp_path / "run", StopAt(0)
    taken = []

    def stop(self, info, epoch):
        taken.append(info.step)
        if len(taken) == 3:  # in the second trial
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tuning._Deadline, "step", stop)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_data, out=run, tune=5.0, reporters=[reporter], **OPTIONS)
    done = len(search_of(run)["trials"])
    assert done == 1
    assert f"the best so far is the run {run / 'tuning' / '01'}" in reporter.said[-1]
    assert Predictor.load(run / "tuning" / "01", device="cpu").predict("red apple", k=3).ids
    assert not (run / "config.json").exists()
    train(tiny_data, out=run, resume=True, device="cpu")
    assert len(search_of(run)["trials"]) == 3
    train(tiny_data, out=tmp_path / "whole", tune=5.0, **OPTIONS)
    values = [[t["value"] for t in search_of(r)["trials"]] for r in (run, tmp_path / "whole")]
    assert values[0] == values[1]
    assert outcome(run) == outcome(tmp_path / "whole")


def test_when_the_time_is_over_the_run_is_trained_with_what_is_known(tiny_data, tmp_path):
    run, reporter = tmp_path / "run", StopAt(0)
    train(tiny_data, out=run, tune=1e-6, reporters=[reporter], **OPTIONS)
    found = search_of(run)
    assert found["trials"] == []
    assert any("minutes of tuning are over" in line for line in reporter.said)
    assert (run / "models.json").is_file()


def test_no_validation_or_no_time_is_a_sentence(tiny_data, tmp_path):
    with pytest.raises(ConfigError, match="needs validation"):
        train(tiny_data, out=tmp_path / "run", tune=1.0, device="cpu",
              overrides=[*SETTINGS, "validation.share=0"])  # fmt: skip
    with pytest.raises(ConfigError, match="above 0 minutes"):
        train(tiny_data, out=tmp_path / "run", tune=0.0, **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_candidates_are_settings_and_leave_the_users_own_alone():
    config = resolve_open_settings(load_config("unidec-frugal"))
    found = candidates_of(config)
    assert found[0] == []
    assert len(found) == 9
    search = Tuning(folder=None, base=config, reasons=[], candidates=found, rungs=[1], seconds=1)
    assert len({str(search._config(i)) for i in range(len(found))}) == len(found)
    told = candidates_of(config, frozenset(["train.lr_heads", "augment.method"]))
    assert not [c for c in told if "lr_heads" in str(c) or "augment" in str(c)]
    assert len(told) == 6
    single = resolve_open_settings(load_config("depsl"))
    assert not [c for c in candidates_of(single) if "share" in str(c) or "labels" in str(c)]
