"""A disk that is full during training: one sentence, and a run that goes on to the same result."""

import errno
import shutil

import pytest
from hard_disks import no_room
from small_runs import fit, outcome

from umpteen.errors import NotWritten
from umpteen.files import disk_errors
from umpteen.training.reporters import Silent

EVERY_STEP = "train.checkpoint_seconds=0"


class FullFrom(Silent):
    """No file may grow beyond a size from some step on."""

    def __init__(self, step, size):
        self.at, self.size, self.limit = step, size, None

    def step(self, info, epoch):
        if info.step == self.at:
            self.limit = no_room(self.size)
            self.limit.__enter__()

    def close(self):
        if self.limit is not None:
            self.limit.__exit__(None, None, None)


@pytest.fixture(scope="module")
def whole(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    fit(tiny_data, run, EVERY_STEP)
    return run


SIZES = {"nothing": 0, "a small file": 3000, "not the weights": 10_000}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("step", [1, 7])
def test_a_full_disk_is_a_sentence_and_the_run_goes_on(tiny_data, tmp_path, whole, step, size):
    run = tmp_path / "run"
    full = FullFrom(step, size)
    try:
        with pytest.raises(NotWritten, match=r"could not be written .*make room.*--resume"):
            fit(tiny_data, run, EVERY_STEP, reporters=[full])
    finally:
        full.close()
    fit(tiny_data, run, resume=True)
    assert outcome(run) == outcome(whole)
    assert not list(run.rglob("*.tmp"))


def test_a_disk_that_is_full_from_the_start_leaves_nothing(tiny_data, tmp_path):
    with no_room(2000), pytest.raises(NotWritten, match="could not be written"):
        fit(tiny_data, tmp_path / "run")
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    fit(tiny_data, tmp_path / "run", "train.epochs=1")


def test_errors_of_libraries_that_write_are_known_by_the_words_of_the_system():
    def fail(error):
        with disk_errors("run", advice="try again"):
            raise error

    for error in (
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        Exception("write failed: Disk quota exceeded"),
    ):
        with pytest.raises(NotWritten, match="run could not be written"):
            fail(error)
    for error in (OSError(errno.ENOENT, "No such file"), ValueError("another")):
        with pytest.raises(type(error)):
            fail(error)
