"""Commands as real processes, for tests that kill them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import SETTINGS

HERE = Path(__file__).parent


class Nursery:
    """Starts commands as children of a process that has torch loaded (see ``nursery.py``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "UMPTEEN_CACHE": str(folder / "cache"),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
            "COLUMNS": "200",
        }
        self._process = subprocess.Popen(
            [sys.executable, HERE / "nursery.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __call__(self, arguments, *, folder, **job) -> int:
        """Run a command; its exit code, or minus the signal that ended it."""
        job |= {"arguments": [str(part) for part in arguments], "folder": str(folder)}
        job["errors"] = str(self.folder / "said.txt")
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())["code"]

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

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=180)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    started = Nursery(tmp_path_factory.mktemp("nursery"))
    yield started
    started.close()
