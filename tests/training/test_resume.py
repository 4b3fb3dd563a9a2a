"""``--resume`` after the original command: agreeing settings are accepted, others are named."""

import json

import pytest
from small_runs import SETTINGS, StopAt, fit, outcome

from umpteen.errors import ConfigError
from umpteen.training.run import train


def stopped(data, out, **options):
    """Start a run and stop it after two steps."""
    with pytest.raises(KeyboardInterrupt):
        train(data, out=out, device="cpu", reporters=[StopAt(3)], **options)


@pytest.fixture(scope="module")
def whole(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    fit(tiny_data, run, "train.checkpoint_seconds=0")
    return outcome(run)


@pytest.mark.parametrize("preset", [None, "unidec-frugal"])
def test_the_original_command_can_be_repeated(preset, whole, tiny_data, tmp_path):
    overrides = [*SETTINGS, "train.checkpoint_seconds=0"]
    options = {"overrides": overrides, "preset": preset}
    stopped(tiny_data, tmp_path / "run", **options)
    train(tiny_data, out=tmp_path / "run", device="cpu", resume=True, **options)
    if preset is None:
        assert outcome(tmp_path / "run") == whole


def test_a_part_of_the_original_command_is_enough(whole, tiny_data, tmp_path):
    stopped(tiny_data, tmp_path / "run", overrides=[*SETTINGS, "train.checkpoint_seconds=0"])
    train(tiny_data, out=tmp_path / "run", device="cpu", resume=True, overrides=SETTINGS[:2])
    assert outcome(tmp_path / "run") == whole


def test_settings_that_a_budget_changed_need_not_agree(tiny_data, tmp_path):
    changes = [c for c in SETTINGS if not c.startswith(("train.epochs", "ensemble"))]
    options = {
        "overrides": [*changes, "ensemble.lexical=false", "train.checkpoint_seconds=0"],
        "preset": "unidec-frugal",
        "minutes": 1e-6,
    }
    with pytest.raises(KeyboardInterrupt):
        train(tiny_data, out=tmp_path / "run", device="cpu", reporters=[StopAt(1)], **options)
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written["minutes"] == 1e-6
    assert written["config"]["train"]["epochs"] == 1
    train(tiny_data, out=tmp_path / "run", device="cpu", resume=True, **options)
    with pytest.raises(ConfigError, match=r"--minutes is 2, but .* started with --minutes 1e-06"):
        train(tiny_data, out=tmp_path / "run", resume=True, minutes=2)
    with pytest.raises(ConfigError, match="train.epochs is 3 in the command and 1 in the run"):
        train(tiny_data, out=tmp_path / "run", resume=True, overrides=["train.epochs=3"])


DIFFERENT = [
    ({"overrides": ["seed=3"]}, "seed is 3 in the command and 17 in the run"),
    ({"overrides": [*SETTINGS, "train.epochs=9"]}, "train.epochs is 9 in the command and 4 in"),
    ({"preset": "unidec-frugal"}, "encoder.table is|encoder.dim is"),
    ({"dataset": "lf-wikipedia-500k"}, "is .* in the command and .* in the run"),
    ({"minutes": 3}, "--minutes is 3, but the run was started without --minutes"),
]


@pytest.mark.parametrize(("given", "message"), DIFFERENT)
def test_the_first_difference_is_named_and_nothing_changes(
    given, message, tiny_data, finished, tmp_path
):
    before = outcome(finished)
    with pytest.raises(ConfigError, match=message) as raised:
        train(tiny_data, out=finished, resume=True, **given)
    assert "keeps its own settings" in str(raised.value)
    assert outcome(finished) == before


@pytest.fixture(scope="module")
def finished(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("finished") / "run"
    fit(tiny_data, run)
    return run
