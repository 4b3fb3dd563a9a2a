"""Reporters of a run's progress: the step log, a terminal, TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, cast

from umpteen.config.schema import RunConfig
from umpteen.config.settings import read_preset, with_overrides
from umpteen.errors import ConfigError, UmpteenError, first_line
from umpteen.escape import escape_controls
from umpteen.extras import require
from umpteen.files import atomic_file
from umpteen.log_lines import Detail
from umpteen.registry import resolve
from umpteen.run_folder import RunFolder
from umpteen.training.loop import StepInfo

METHODS = ("log", "start", "step", "validation", "close")


class Reporter(Protocol):
    """Interface for objects that receive training progress."""

    def log(self, text: str) -> None:
        """Receive a progress line."""

    def start(self, n_epochs: int, epoch: float) -> None:
        """Receive the start of training, or of its continuation, at this many epochs."""

    def step(self, info: StepInfo, epoch: float) -> None:
        """Receive the numbers of a step; ``epoch`` is the exact progress."""

    def validation(self, epoch: int, metrics: dict[str, Any], *, best: bool) -> None:
        """Receive the validation metrics after this many epochs."""

    def close(self) -> None:
        """Receive the end of the run, for whatever reason."""


class Silent:
    """Ignore all events; the base of reporters that handle some of them."""

    def log(self, text: str) -> None:
        """Do nothing."""

    def start(self, n_epochs: int, epoch: float) -> None:
        """Do nothing."""

    def step(self, info: StepInfo, epoch: float) -> None:
        """Do nothing."""

    def validation(self, epoch: int, metrics: dict[str, Any], *, best: bool) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def named_reporter(name: str, run: Path) -> Reporter:
    """Return a reporter by the name of its class.

    Args:
        name: ``package.module:Name``.
        run: The run folder, its only argument.

    Raises:
        ConfigError: If it cannot be imported or made, or lacks a method of ``Reporter``.
    """
    if ":" not in name:
        raise ConfigError(f"reporter {name!r} is no name of a class; give package.module:Name")
    kind = resolve({}, name, kind="reporter")
    try:
        reporter: Reporter = kind(run)
    except Exception as error:  # code of others
        raise ConfigError(f"reporter {name!r} could not be made: {error}") from error
    missing = [each for each in METHODS if not callable(getattr(reporter, each, None))]
    if missing:
        raise ConfigError(
            f"reporter {name!r} has no method {missing[0]}; inherit from "
            "umpteen.training.reporters.Silent"
        )
    return cast(Reporter, _Named(name, reporter))


class _Named:
    """A reporter whose errors end training with a sentence that names it."""

    def __init__(self, name: str, reporter: Reporter) -> None:
        self.name = name
        for method in METHODS:
            setattr(self, method, self._guarded(method, getattr(reporter, method)))

    def _guarded(self, method: str, function: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **options: Any) -> None:
            try:
                function(*args, **options)
            except Exception as error:  # code of others
                raise UmpteenError(
                    f"reporter {self.name!r} failed in {method}: {first_line(error)}; "
                    "continue with --resume once it works, or without it"
                ) from error

        return call


def reporters_of_settings(
    preset: str | None, overrides: Sequence[str], config: RunConfig | None, run: Path
) -> list[Reporter]:
    """Return the reporters that the settings of a command name; never those of a run folder.

    Args:
        preset: A preset's name or file.
        overrides: ``section.key=value`` strings.
        config: The settings themselves, instead of both.
        run: The run folder.

    Raises:
        ConfigError: If one cannot be imported or made.
    """
    if config is not None:
        names: Any = config.train.reporters
    else:
        values = with_overrides({} if preset is None else read_preset(preset), overrides)
        names = values.get("train", {}).get("reporters", ())
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"train.reporters must be a list of package.module:Name, not {names!r}")
    return [named_reporter(name, run) for name in names]


class StepLog(Silent):
    """``steps.jsonl``: one line per step.

    Args:
        path: The file; lines after ``last_step`` (of steps that a resumed run takes again) are cut.
            Seconds go on from the last line that is kept.
        last_step: Steps taken so far.
    """

    def __init__(self, path: Path, *, last_step: int) -> None:
        kept, seconds = [], 0.0
        for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
            try:
                step = json.loads(line)
                if step["step"] <= last_step:
                    kept.append(line + "\n")
                    seconds = float(step["seconds"])
            except (ValueError, KeyError, TypeError):
                break  # a line cut short by a kill; those after it are newer still
        with atomic_file(path) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")
        self._start = time.monotonic() - seconds

    def step(self, info: StepInfo, epoch: float) -> None:
        """Write the step's line."""
        line = asdict(info) | {"seconds": round(time.monotonic() - self._start, 3)}
        self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Hand everything to the system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LogFile(Silent):
    """``log.txt``: progress lines with the time of day, added to what is there."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def log(self, text: str) -> None:
        """Add a line."""
        self._folder.write_log(text)

    def validation(self, epoch: int, metrics: dict[str, Any], *, best: bool) -> None:
        """Add the metrics of the head that counts."""
        self.log(validation_line(epoch, metrics, best=best))


def validation_line(epoch: int, metrics: dict[str, Any], *, best: bool) -> str:
    """Return the metrics of the head that counts, in one line."""
    head, values = list(metrics.items())[-1]
    numbers = "  ".join(f"{name} {value:5.2f}" for name, value in values.items())
    return f"epoch {epoch:>3}  {head}  {numbers}{'  best so far' if best else ''}"


class Terminal(Silent):
    """A progress bar with loss, pool, positives, speed and time left; validations above it.

    Args:
        verbose: Whether details are printed too.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.console = Console(stderr=True)
        self._verbose = verbose
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.shows_steps = self.console.is_terminal
        self._task: Any = None
        self._n_epochs = 0
        self._loss = 0.0
        self._queries = 0
        self._since = 0.0
        self._speed = 0.0

    def log(self, text: str) -> None:
        """Print a line above the progress bar."""
        if isinstance(text, Detail) and not self._verbose:
            return
        text = escape_controls(text, keep="\n\t")
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def start(self, n_epochs: int, epoch: float) -> None:
        """Show the bar."""
        self._n_epochs = n_epochs
        self._since = time.monotonic()
        self._task = self._progress.add_task(
            "train",
            total=n_epochs,
            completed=epoch,  # type: ignore[arg-type]
            epoch=f"{int(epoch) + 1}/{n_epochs}",
            numbers="",
        )
        if self.console.is_terminal:
            self._progress.start()

    def step(self, info: StepInfo, epoch: float) -> None:
        """Move the bar."""
        self._loss = info.loss if not self._loss else 0.95 * self._loss + 0.05 * info.loss
        self._queries += info.queries
        passed = time.monotonic() - self._since
        if passed > 0.5:
            self._speed, self._queries, self._since = self._queries / passed, 0, time.monotonic()
        self._progress.update(
            self._task,
            completed=epoch,
            epoch=f"{info.epoch}/{self._n_epochs}",
            numbers=(
                f"loss {self._loss:.3f} · {info.labels:,} labels · "
                f"{info.positives:.1f} positives · {self._speed:,.0f} queries/s"
            ),
        )

    def validation(self, epoch: int, metrics: dict[str, Any], *, best: bool) -> None:
        """Print the head that counts."""
        self.log(validation_line(epoch, metrics, best=best))

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()


class TensorBoard(Silent):
    """Curves for TensorBoard (extra ``track``)."""

    def __init__(self, folder: Path) -> None:
        require("tensorboard", extra="track")
        self._folder = folder
        self._writer: Any = None

    def start(self, n_epochs: int, epoch: float) -> None:
        """Open its files: only now, because a new run's folder must be empty before."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder))

    def step(self, info: StepInfo, epoch: float) -> None:
        """Add the step's numbers."""
        for name in ("loss", "labels", "positives", "lr_factor"):
            self._writer.add_scalar(f"train/{name}", getattr(info, name), info.step)

    def validation(self, epoch: int, metrics: dict[str, Any], *, best: bool) -> None:
        """Add each head's metrics."""
        for head, values in metrics.items():
            for name, value in values.items():
                self._writer.add_scalar(f"validation/{head}/{name}", value, epoch)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
