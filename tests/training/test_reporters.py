"""The step log over stops and kills, the terminal, and TensorBoard."""

import json
import shutil
import sys

import pytest
from small_runs import StopAt, fit

import umpteen
from umpteen.errors import ConfigError, RunError
from umpteen.training.loop import StepInfo
from umpteen.training.reporters import StepLog, TensorBoard, Terminal
from umpteen.training.run import train


def info(step: int, epoch: int = 1) -> StepInfo:
    return StepInfo(step, epoch, 0.5, labels=7, positives=1.5, queries=4, lr_factor=1.0)


def logged(path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def write(path, numbers) -> None:
    log = StepLog(path, last_step=0)
    for number in numbers:
        log.step(info(number), 0.0)
    log.close()


def test_one_line_per_step_with_all_its_numbers(tmp_path):
    write(tmp_path / "steps.jsonl", [1, 2])
    first = json.loads((tmp_path / "steps.jsonl").read_text().splitlines()[0])
    assert set(first) == {
        "step", "epoch", "loss", "labels", "positives", "queries", "lr_factor", "seconds"
    }  # fmt: skip
    assert first["loss"] == 0.5


def test_steps_that_are_taken_again_are_cut(tmp_path):
    path = tmp_path / "steps.jsonl"
    write(path, range(1, 6))
    log = StepLog(path, last_step=3)
    log.step(info(4), 0.0)
    log.close()
    assert logged(path) == [1, 2, 3, 4]


def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path):
    path = tmp_path / "steps.jsonl"
    write(path, [1, 2, 3])
    path.write_text(path.read_text()[:-9])
    StepLog(path, last_step=3).close()
    assert logged(path) == [1, 2]


@pytest.mark.parametrize("damage", ["null\n", "[4]\n", '{"step": "x", "seconds": 1}\n', "\x00\x00"])
def test_lines_that_are_no_steps_end_the_log(damage, tmp_path):
    path = tmp_path / "steps.jsonl"
    write(path, [1, 2])
    with path.open("a") as out:
        out.write(damage)
    StepLog(path, last_step=9).close()
    assert logged(path) == [1, 2]


def test_a_kill_while_the_log_is_opened_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "steps.jsonl"
    write(path, [1, 2, 3])

    def killed(*_):
        raise SystemExit

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(SystemExit):
        StepLog(path, last_step=2)
    assert logged(path) == [1, 2, 3]


def test_what_is_flushed_is_on_disk(tmp_path):
    path = tmp_path / "steps.jsonl"
    log = StepLog(path, last_step=0)
    log.step(info(1), 0.0)
    log.flush()
    assert logged(path) == [1]
    log.close()


def test_seconds_go_on_after_a_stop(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text(json.dumps({"step": 1, "seconds": 1000.0}) + "\n")
    log = StepLog(path, last_step=1)
    log.step(info(2), 0.0)
    log.close()
    assert json.loads(path.read_text().splitlines()[-1])["seconds"] >= 1000.0


def test_the_terminal_prints_to_stderr_and_marks_the_best(capsys):
    terminal = Terminal()
    terminal.start(3, 0.0)
    terminal.step(info(1), 0.2)
    terminal.validation(1, {"dual": {"P@1": 1.0}, "combined": {"P@1": 25.0}}, best=True)
    terminal.validation(2, {"dual": {"P@1": 1.0}, "combined": {"P@1": 20.0}}, best=False)
    terminal.log("[red] brackets stay as they are")
    terminal.close()
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert any("combined" in line and "25.00" in line and "best so far" in line for line in lines)
    assert any("20.00" in line and "best" not in line for line in lines)
    assert "[red] brackets stay as they are" in printed.err


def test_tensorboard_can_be_asked_for_in_a_new_run(tiny_data, tmp_path):
    pytest.importorskip("tensorboard")
    run = tmp_path / "run"
    fit(tiny_data, run, "train.epochs=1", reporters=[TensorBoard(run / "tensorboard")])
    assert list((run / "tensorboard").glob("events.*"))


def test_tensorboard_that_never_started_can_be_closed(tmp_path):
    pytest.importorskip("tensorboard")
    TensorBoard(tmp_path / "tensorboard").close()
    assert not (tmp_path / "tensorboard").exists()


CLASS = """
from umpteen.training.reporters import Silent


class Kept(Silent):
    def __init__(self, run):
        self.file = run.with_name("seen.txt")

    def step(self, info, epoch):
        with self.file.open("a") as out:
            print("step", info.step, file=out)

    def close(self):
        with self.file.open("a") as out:
            print("close", file=out)


class Down(Silent):
    def __init__(self, run):
        pass

    def step(self, info, epoch):
        raise ConnectionError("the tracking server is down")


class Half:
    def __init__(self, run):
        pass
"""


def test_a_reporter_named_on_the_command_line_receives_the_progress(
    tiny_data_folder, tmp_path, monkeypatch
):
    from click.testing import CliRunner
    from small_runs import SETTINGS

    from umpteen.cli import main

    (tmp_path / "my_reporter.py").write_text(CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["train", str(tiny_data_folder), "--out", str(tmp_path / "run"), "--device", "cpu"]
    words += [word for setting in (*SETTINGS, "train.epochs=1") for word in ("--set", setting)]
    found = CliRunner().invoke(main, [*words, "--reporter", "my_reporter:Kept"])
    assert found.exit_code == 0, found.stderr
    seen = (tmp_path / "seen.txt").read_text().split("\n")
    assert seen[0] == "step 1"
    assert seen[-2] == "close"
    words[words.index(str(tmp_path / "run"))] = str(tmp_path / "other")
    for name, says in (
        ("my_reporter:Half", "has no method log"),
        ("my_reporter", "is no name of a class"),
        ("my_reporter:Gone", "cannot be loaded"),
    ):
        refused = CliRunner().invoke(main, [*words, "--reporter", name])
        assert refused.exit_code == 1
        assert says in refused.stderr
        assert not (tmp_path / "other").exists()
    failed = CliRunner().invoke(main, [*words, "--reporter", "my_reporter:Down"])
    assert failed.exit_code == 1
    assert (
        "umpteen: reporter 'my_reporter:Down' failed in step: the tracking server is down; "
        "continue with --resume"
    ) in failed.stderr


def test_reporters_of_settings_receive_the_progress_and_stay_out_of_the_run(
    tiny_data, tmp_path, monkeypatch
):
    (tmp_path / "settings_reporter.py").write_text(CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    run, named = tmp_path / "run", "train.reporters=['settings_reporter:Kept']"
    stopped = StopAt(2)
    with pytest.raises(KeyboardInterrupt):
        fit(tiny_data, run, "train.epochs=1", named, reporters=[stopped])
    assert json.loads((run / "config.json").read_text())["config"]["train"]["reporters"] == []
    train(tiny_data, out=run, device="cpu", resume=True, overrides=[named])
    assert (tmp_path / "seen.txt").read_text().split("\n")[-2] == "close"
    with pytest.raises(ConfigError, match="has no method log"):
        fit(tiny_data, tmp_path / "other", "train.reporters=['settings_reporter:Half']")
    with pytest.raises(ConfigError, match="train.reporters must be a list"):
        fit(tiny_data, tmp_path / "other", "train.reporters=settings_reporter:Kept")


def test_a_reporter_in_the_files_of_a_run_is_never_imported(
    tiny_data, tiny_run, tmp_path, monkeypatch
):
    (tmp_path / "hostile_reporter.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    run = shutil.copytree(tiny_run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["config"]["train"]["reporters"] = ["hostile_reporter:Name"]
    (run / "config.json").write_text(json.dumps(config))
    umpteen.Predictor.load(run).predict("red apple")
    out = tmp_path / "other"
    for options in (
        {"out": run, "resume": True},
        {"out": out, "preset": str(run / "config.json")},
        {"out": out, "from_run": run},
    ):
        with pytest.raises(RunError, match="cannot name code"):
            train(tiny_data, device="cpu", **options)
    assert "hostile_reporter" not in sys.modules
