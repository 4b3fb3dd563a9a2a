"""Commands as real processes, for tests that kill them."""

import os
from pathlib import Path

import pytest
from forks import fork
from small_runs import SETTINGS

HERE = Path(__file__).parent


class Nursery:
    """Starts commands as processes that fork from one with torch (see ``nursery.py``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "UMPTEEN_CACHE": str(folder / "cache"),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
            "COLUMNS": "200",
        }

    def __call__(self, arguments, *, folder, **job) -> int:
        """Run a command; its exit code, or minus the signal that ended it."""
        job |= {"arguments": [str(part) for part in arguments], "folder": str(folder)}
        job["errors"] = str(self.folder / "said.txt")
        ended = fork(HERE / "nursery.py", "attend", job, environment=self._environment).wait()
        assert ended == 0
        return int((self.folder / "said.txt.code").read_text())

    def train(self, data, run, *changes, resume=False, **job) -> int:
        """``umpteen train`` with the small settings, or ``--resume``."""
        settings = [] if resume else [*SETTINGS, "train.checkpoint_seconds=0", *changes]
        flags = ["--resume"] if resume else [f"--set={each}" for each in settings]
        arguments = ["train", data, "--out", run, "--device", "cpu", *flags]
        return self(arguments, folder=run, **job)

    @property
    def said(self) -> str:
        """What the last command printed."""
        return (self.folder / "said.txt").read_text()

    @property
    def events(self) -> list[str]:
        """What the last command that ended by itself did to the folder, in order."""
        return (self.folder / "said.txt.events").read_text().splitlines()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    return Nursery(tmp_path_factory.mktemp("nursery"))
