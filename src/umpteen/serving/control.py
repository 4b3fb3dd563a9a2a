"""Which models all workers serve: a small file that any worker may change and all follow."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from umpteen.files import write_json


@dataclass(frozen=True)
class Wanted:
    """What the workers should serve."""

    runs: dict[str, str]
    """Name to run folder."""
    active: str
    """The name that requests without a model get."""
    previous: str | None = None
    """What was active before it, for a roll back."""
    generation: int = 0
    """Number of changes so far."""


@dataclass
class Control:
    """The shared file; without a folder the state is kept in memory, for one worker."""

    folder: str | None
    wanted: Wanted
    _stamp: tuple[int, int] = field(default=(0, 0), repr=False)

    def __post_init__(self) -> None:
        if self.folder is not None:
            # Behind until it has loaded what it reads here: a change meanwhile waits for it.
            self.acknowledge(-1)
            self.read()  # a worker that is started later follows what was changed since

    def read(self) -> Wanted:
        """Return what is wanted now."""
        if self.folder is None:
            return self.wanted
        with contextlib.suppress(OSError, ValueError, TypeError):
            stat = self._file.stat()
            if (stat.st_ino, stat.st_mtime_ns) != self._stamp:
                self.wanted = Wanted(**json.loads(self._file.read_text("utf-8")))
                self._stamp = (stat.st_ino, stat.st_mtime_ns)
        return self.wanted

    @contextlib.contextmanager
    def change(self) -> Iterator[Wanted]:
        """Hold the lock for a change; yields what is wanted now."""
        if self.folder is None:
            yield self.wanted
            return
        with (Path(self.folder) / "models.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.read()

    def write(self, **changes: object) -> Wanted:
        """Change what is wanted; call it inside ``change``."""
        generation = self.wanted.generation + 1
        self.wanted = replace(self.wanted, generation=generation, **changes)  # type: ignore[arg-type]
        if self.folder is not None:
            write_json(self._file, asdict(self.wanted))
        return self.wanted

    def acknowledge(self, generation: int) -> None:
        """Note that this worker serves what was wanted by a generation."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (Path(self.folder) / f"worker-{os.getpid()}").write_text(str(generation))

    def behind(self) -> int:
        """Return the number of workers that do not serve what is wanted yet."""
        if self.folder is None:
            return 0
        count = 0
        for file in Path(self.folder).glob("worker-*"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.name.partition("-")[2]), 0)
                count += int(file.read_text() or 0) < self.wanted.generation
        return count

    @property
    def _file(self) -> Path:
        assert self.folder is not None
        return Path(self.folder) / "models.json"
