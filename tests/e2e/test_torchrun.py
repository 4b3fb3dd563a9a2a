"""The command under a real torchrun: a rank is killed, and the restart continues."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rank_children import on_ranks, said
from small_runs import SETTINGS, outcome, steps
from waiting import PATIENCE

import umpteen
from umpteen.data.formats import load_dataset
from umpteen.training.run import train

pytestmark = pytest.mark.processes

CHANGES = (*SETTINGS, "batches.size=4", "train.checkpoint_seconds=0", "train.epochs=2")
SCRIPT = Path(__file__).with_name("umpteen_that_ends.py")
SOURCE = str(Path(umpteen.__file__).parent.parent)


def undisturbed(ranks, folder):
    """The same run on as many ranks, started without torchrun and never killed."""
    data = load_dataset(folder / "data")
    train(data, out=folder / "whole", overrides=CHANGES, device="cpu", ranks=ranks)


@pytest.mark.slow
def test_a_killed_rank_ends_the_try_and_the_restart_continues(tiny_data_folder, tmp_path):
    (tmp_path / "data").symlink_to(tiny_data_folder)
    run, errors = tmp_path / "run", tmp_path / "errors"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("--max-restarts=1", "--monitor-interval=0.1"),
        *(str(SCRIPT), "train", str(tmp_path / "data"), "--out", str(run), "--device", "cpu"),
        *(part for change in CHANGES for part in ("--set", change)),
    ]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    with errors.open("w") as out:
        job = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            code = job.wait(timeout=PATIENCE)
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait()
    spoken = errors.read_text()
    assert code == 0, spoken
    # The other rank notices the lost connection, unless torchrun ends it before: either is right.
    assert "Continuing from" in spoken
    assert "umpteen/training" not in spoken  # no traceback of ours
    codes = on_ranks(__file__, "undisturbed", 2, tmp_path)
    assert codes == [0, 0], said(tmp_path)
    assert len(steps(run)) > 20
    assert outcome(run) == outcome(tmp_path / "whole")
