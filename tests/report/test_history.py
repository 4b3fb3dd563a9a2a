import json

import numpy as np
import pytest

from umpteen.errors import RunError
from umpteen.report.history import Steps, loss_curve, read_history, read_steps
from umpteen.run_folder import RunFolder


def write_steps(path, losses, seconds=None, tail=""):
    seconds = seconds or [float(i) for i in range(len(losses))]
    lines = [
        json.dumps({"step": i + 1, "epoch": 1 + i // 3, "loss": loss, "seconds": now})
        for i, (loss, now) in enumerate(zip(losses, seconds, strict=True))
    ]
    path.write_text("".join(line + "\n" for line in lines) + tail)
    return path


def make_run(folder, *, epochs=4, patience=0, last="epoch-0004", best=None, values=()):
    folder.mkdir(exist_ok=True)
    settings = {"train": {"epochs": epochs}, "validation": {"patience": patience}}
    (folder / "config.json").write_text(json.dumps({"config": settings}))
    names = {"best": f"models/{best or last}", "last": f"models/{last}"}
    for name in names.values():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "vectors.npy").touch()
    (folder / "models.json").write_text(json.dumps(names))
    if values:
        entries = [
            {"epoch": i + 1, "value": value, "heads": {"dual": {"P@1": value}}}
            for i, value in enumerate(values)
        ]
        document = {"select": "P@1", "validation": entries}
        (folder / "metrics.json").write_text(json.dumps(document))
    return RunFolder(folder)


def test_step_log_is_read_up_to_a_line_cut_short(tmp_path):
    steps = read_steps(write_steps(tmp_path / "s", [3.0, 2.0, 1.0, 0.5], tail='{"step": 5, "lo'))
    assert steps.losses.tolist() == [3.0, 2.0, 1.0, 0.5]
    assert (steps.epoch, steps.damaged_line) == (2, 5)


def test_seconds_of_a_resumed_run_are_added_up(tmp_path):
    steps = read_steps(write_steps(tmp_path / "s", [1.0] * 5, seconds=[1.0, 4.0, 0.5, 2.0, 7.0]))
    assert steps.seconds == 11.0


def test_a_step_log_with_strange_bytes_is_not_the_end(tmp_path):
    path = tmp_path / "s"
    path.write_bytes(b"\xff\xfe\n[1]\n")
    assert read_steps(path).damaged_line == 1


@pytest.mark.parametrize("n", [1, 2, 7, 301, 1234])
def test_loss_curve_keeps_extremes_and_smooths_as_written_out(n):
    losses = np.random.default_rng(n).normal(5, 2, n)
    curve = loss_curve(Steps(np.arange(1, n + 1), losses, 1, 0.0), points=50)
    assert len(curve.steps) == min(n, 50)
    assert curve.low.min() == losses.min()
    assert curve.high.max() == losses.max()
    assert (np.diff(curve.steps) > 0).all()
    reach = max(1, n // 40)
    for step, smooth in zip(curve.steps.astype(int), curve.smooth, strict=True):
        window = losses[max(0, step - 1 - reach) : step + reach]
        assert smooth == pytest.approx(window.mean())


def test_a_run_that_saved_its_last_epoch_is_finished(tmp_path):
    run = make_run(tmp_path / "run", best="epoch-0002", values=[1.0, 3.0, 2.0, 2.5])
    history = read_history(run)
    assert history.finished
    assert not history.early
    assert history.model_epoch == 2
    assert history.steps is None


def test_a_run_short_of_its_epochs_is_not_finished(tmp_path):
    history = read_history(make_run(tmp_path / "run", last="epoch-0002", values=[1.0, 3.0]))
    assert not history.finished
    assert history.reached == 2


@pytest.mark.parametrize(("values", "early"), [([3.0, 1.0, 2.0], True), ([1.0, 3.0, 2.0], False)])
def test_patience_that_ran_out_ends_a_run_early(tmp_path, values, early):
    run = make_run(tmp_path / "run", patience=2, last="epoch-0003", values=values)
    history = read_history(run)
    assert (history.finished, history.early) == (early, early)


@pytest.mark.parametrize(("values", "early"), [([9.0, 3.0, 4.0, 2.0], False), ([9, 3, 2, 1], True)])
def test_patience_counts_in_the_second_of_two_stages_alone(tmp_path, values, early):
    run = make_run(tmp_path / "run", patience=2, last="epoch-0004", values=values)
    settings = json.loads(run.config.read_text())["config"]
    settings["train"]["epochs"], settings["stage2"] = 1, {"train": {"epochs": 4}}
    run.config.write_text(json.dumps({"config": settings}))
    assert read_history(run).early == early


def test_a_folder_without_a_run_is_told(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder \(no config.json\)"):
        read_history(RunFolder(tmp_path))


def test_settings_that_are_not_settings_are_told(tmp_path):
    run = make_run(tmp_path / "run")
    run.config.write_text('{"config": {"train": {}}}')
    with pytest.raises(RunError, match=r"config.json is not the settings file .*'epochs'"):
        read_history(run)


@pytest.mark.parametrize("text", ["[]", '{"validation": [{}]}', '{"select": "P@1"}'])
def test_a_validation_history_of_another_shape_is_told(tmp_path, text):
    run = make_run(tmp_path / "run")
    run.metrics.write_text(text)
    with pytest.raises(RunError, match=r"metrics.json is not the validation history"):
        read_history(run)
