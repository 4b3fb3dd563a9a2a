"""The command under a real torchrun: a killed rank is spoken of, and the restart continues."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rank_children import on_ranks, said
from small_runs import SETTINGS, outcome, steps

import umpteen
from umpteen.data.formats import load_dataset
from umpteen.training.run import train

CHANGES = (*SETTINGS, "batches.size=4", "train.checkpoint_seconds=0", "train.epochs=3")
SOURCE = str(Path(umpteen.__file__).parent.parent)


def undisturbed(ranks, folder):
    """The same run on as many ranks, started without torchrun and never killed."""
    data = load_dataset(folder / "data")
    train(data, out=folder / "whole", overrides=CHANGES, device="cpu", ranks=ranks)


def processes_below(parent: int) -> dict[int, int]:
    """Rank to process id, of the children of a torchrun."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = {}
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        for variable in variables:
            if variable.startswith(b"RANK="):
                found[int(variable[5:])] = int(child)
    return found


def wait_for_steps(run, n, job, seconds=180):
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.poll() is None:
        log = run / "steps.jsonl"
        if log.is_file() and log.read_bytes().count(b"\n") >= n:
            return
        time.sleep(0.005)
    raise AssertionError("no step was taken")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
def test_a_killed_rank_ends_the_try_with_a_sentence_and_the_restart_continues(
    tiny_data_folder, tmp_path
):
    (tmp_path / "data").symlink_to(tiny_data_folder)
    run, errors = tmp_path / "run", tmp_path / "errors"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("--max-restarts=1", "--monitor-interval=0.1"),
        *("-m", "umpteen", "train", str(tmp_path / "data"), "--out", str(run), "--device", "cpu"),
        *(part for change in CHANGES for part in ("--set", change)),
    ]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    with errors.open("w") as out:
        job = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            wait_for_steps(run, 5, job)
            os.kill(processes_below(job.pid)[1], signal.SIGKILL)
            taken = len(steps(run))
            code = job.wait(timeout=180)
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait()
    spoken = errors.read_text()
    assert code == 0, spoken
    assert "rank 0 of 2 (counted from 0) gets no answer from the others" in spoken
    assert "Continuing from" in spoken
    assert "umpteen/training" not in spoken  # no traceback of ours
    codes = on_ranks(__file__, "undisturbed", 2, tmp_path)
    assert codes == [0, 0], said(tmp_path)
    assert taken < len(steps(tmp_path / "whole"))
    assert outcome(run) == outcome(tmp_path / "whole")
