"""Runs of a study in several processes: the same results, and nothing left behind."""

import json
import os
import select
import signal

import forks
import pytest
from forks import fork, run_command
from small_runs import SETTINGS
from waiting import PATIENCE

from umpteen.study import running
from umpteen.study.definition import read_study

pytestmark = [pytest.mark.slow, pytest.mark.processes]
TEXT = """
seeds = [1]
metrics = ["P@1", "P@5"]
settings = {settings}

[data.tiny]
path = "{{tiny}}"

[switches.plain]

[switches.ends]
settings = ["loss.dual=ends_its_process:Ends"]

[switches.broken]
settings = ["loss.dual=no_such_loss"]

[switches.gandalf]
settings = ["augment.method=gandalf"]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(TEXT.format(settings=json.dumps([*SETTINGS, "validation.every_epochs=1"])))
    return path


def results_of(out):
    found = {path.stem: json.loads(path.read_text()) for path in (out / "results").iterdir()}
    return {
        name: {key: each[key] for key in ("key", "heads", "validation", "steps", "epochs")}
        for name, each in found.items()
    }


def test_runs_at_once_have_the_results_of_runs_one_by_one(
    file, tiny_data_folder, tmp_path, monkeypatch
):
    (tmp_path / "ends_its_process.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    study = read_study(file, {"tiny": str(tiny_data_folder)})
    said = []
    failed = running.run_missing(study, tmp_path / "at-once", device="cpu", jobs=2, log=said.append)
    assert sorted(failed)[1:] == ["tiny--unidec-frugal--ends--seed1: its process ended with code 7"]
    assert "objective 'no_such_loss' is not known" in sorted(failed)[0]
    assert sorted(text for text in said if text.startswith("[")) == [
        "[1/4] tiny--unidec-frugal--plain--seed1",
        "[2/4] tiny--unidec-frugal--ends--seed1",
        "[3/4] tiny--unidec-frugal--broken--seed1",
        "[4/4] tiny--unidec-frugal--gandalf--seed1",
    ]
    for name in ("plain", "gandalf"):
        running.run_missing(study, tmp_path / "one-by-one", device="cpu", only=f"--{name}--")
    assert results_of(tmp_path / "at-once") == results_of(tmp_path / "one-by-one")


def test_processes_end_with_a_command_that_is_killed_and_the_next_one_continues(
    file, tiny_data_folder, tmp_path
):
    out = tmp_path / "out"
    words = [
        *("study", str(file), "--out", str(out), "--device", "cpu"),
        *("--path", f"tiny={tiny_data_folder}", "--jobs", "2", "--only", "--plain--"),
    ]
    reading, writing = os.pipe()
    process = fork(forks.__file__, "command", *words, out=writing)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as said:
        assert said.readline().startswith(b"[1/1] tiny--")  # a run is under way
        process.kill()
        # Children have this pipe too: it ends when all of them have.
        while select.select([said], [], [], PATIENCE)[0] and said.read(1 << 16):
            pass
        assert select.select([said], [], [], 0)[0], "a process goes on"
    assert process.wait() == -signal.SIGKILL
    code, printed = run_command(*words, file=tmp_path / "said.txt")
    assert code == 0, printed
    study = read_study(file, {"tiny": str(tiny_data_folder)})
    running.run_missing(study, tmp_path / "whole", device="cpu", only="--plain--")
    assert results_of(out) == results_of(tmp_path / "whole")
