"""``--tune``: short trials of a few settings, judged by validation alone, before the run itself.

RUN/tuning/tuning.json   what is tried, what came out, and the time spent
RUN/tuning/NN/           each trial, a run of its own
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umpteen.choosing.halving import Trial, entrants, ranked, rungs_of, winner
from umpteen.config import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError, RunError, UmpteenError
from umpteen.files import read_json, write_json
from umpteen.runs import RunFolder
from umpteen.settings import from_mapping, to_json, with_overrides
from umpteen.training.defaults import Settled
from umpteen.training.loop import StepInfo
from umpteen.training.prepare import training_splits
from umpteen.training.reporters import Silent

Say = Callable[[str], None]
FOLDER = "tuning"


class _TimeOver(Exception):
    """The budget is spent."""


class _Deadline(Silent):
    """Ends a trial when the time is over; what it came to does not count."""

    def __init__(self, end: float) -> None:
        self._end = end

    def step(self, info: StepInfo, epoch: float) -> None:
        if time.monotonic() > self._end:
            raise _TimeOver


@dataclass
class Tuning:
    """The search of one run; everything that decides is in ``tuning.json``."""

    folder: Path
    base: RunConfig
    reasons: list[str]
    candidates: list[list[str]]
    """Changes of each; the first has none."""
    rungs: list[int]
    """Epochs of each."""
    seconds: float
    """The whole budget."""
    spent: float = 0.0
    trials: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Number, candidate, rung, value and seconds of each that is done."""

    def write(self) -> None:
        """Write the state, whole or not at all."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del values["folder"]
        write_json(self.folder / "tuning.json", values | {"base": to_json(self.base)})

    @classmethod
    def read(cls, folder: Path) -> Tuning:
        """What ``write`` wrote.

        Raises:
            RunError: If it is damaged.
        """
        file = folder / "tuning.json"
        values = read_json(file, error=RunError)
        try:
            base = from_mapping(values.pop("base"), source=str(file))
            return cls(folder=folder, base=base, **values)
        except (TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{file} is damaged: {error}") from error

    def run(self, data: Dataset, *, device: str, cache: Path, say: Say) -> Settled:
        """Make the trials that are missing, as long as there is time; the winner's settings."""
        try:
            self._try_all(data, device=device, cache=cache, say=say)
        except _TimeOver:
            say(f"the {self.seconds / 60:g} minutes of tuning are over")
        except KeyboardInterrupt:
            best = self._best_trial()
            here = f"the best so far is the run {best}" if best else "no trial is done yet"
            say(f"stopped tuning; {here}; continue with --resume")
            raise
        chosen = winner(self._results()) if self.trials else 0
        for line in self.table():
            say(line)
        reason = f"{_named(self.candidates[chosen])}: the best of {len(self.trials)} trials"
        return Settled(self._config(chosen), (*self.reasons, reason))

    def table(self) -> list[str]:
        """A line for each trial, the best of the longest first."""
        lines = []
        for rung in range(len(self.rungs) - 1, -1, -1):
            by_candidate = {t["candidate"]: t for t in self.trials if t["rung"] == rung}
            for candidate in ranked(self._results(), rung):
                trial = by_candidate[candidate]
                lines.append(
                    f"  {trial['number']:02d}  {self.rungs[rung]:>3} epochs  "
                    f"{self.base.validation.select} {trial['value']:6.2f}  "
                    f"{trial['seconds']:5.0f} s  {_named(self.candidates[candidate])}"
                )
        return lines

    def _try_all(self, data: Dataset, *, device: str, cache: Path, say: Say) -> None:
        number = 0
        for rung, epochs in enumerate(self.rungs):
            for candidate in entrants(len(self.candidates), self._results(), rung):
                number += 1
                if any(trial["number"] == number for trial in self.trials):
                    continue
                changes = [f"train.epochs={epochs}", "ensemble.enabled=off"]
                self._try(number, candidate, rung, changes, data, device, cache)
                say(self.table_line(number))

    def table_line(self, number: int) -> str:
        """What one trial came to."""
        trial = next(trial for trial in self.trials if trial["number"] == number)
        name = _named(self.candidates[trial["candidate"]])
        value = f"{self.base.validation.select} {trial['value']:.2f}"
        return f"trial {number}, {self.rungs[trial['rung']]} epochs, {name}: {value}"

    def _try(
        self,
        number: int,
        candidate: int,
        rung: int,
        changes: list[str],
        data: Dataset,
        device: str,
        cache: Path,
    ) -> None:
        from umpteen.training.run import train

        left = self.seconds - self.spent
        if left <= 0:
            raise _TimeOver
        out = self.folder / f"{number:02d}"
        begun = RunFolder(out).config.is_file()
        started = time.monotonic()
        try:
            train(
                data,
                out=out,
                config=None if begun else self._config(candidate, changes),
                resume=begun,
                device=device,
                cache=cache,
                reporters=[_Deadline(started + left)],
            )
            history = read_json(RunFolder(out).metrics, error=RunError)["validation"]
            value = max(entry["value"] for entry in history)
        except UmpteenError:
            if candidate == 0:
                raise  # the run itself would fail, too
            value = 0.0  # rates that are too high, or a change that does not fit: it has lost
        finally:
            self.spent += time.monotonic() - started
            self.write()
        seconds = time.monotonic() - started
        self.trials.append(
            {"number": number, "candidate": candidate, "rung": rung, "value": value,
             "seconds": seconds}
        )  # fmt: skip
        self.write()

    def _config(self, candidate: int, changes: list[str] | None = None) -> RunConfig:
        values = with_overrides(to_json(self.base), [*self.candidates[candidate], *(changes or [])])
        return from_mapping(values, source="tuning")

    def _results(self) -> list[Trial]:
        return [Trial(t["candidate"], t["rung"], t["value"]) for t in self.trials]

    def _best_trial(self) -> Path | None:
        if not self.trials:
            return None
        chosen = winner(self._results())
        own = [trial["number"] for trial in self.trials if trial["candidate"] == chosen]
        return self.folder / f"{max(own):02d}"


def new_tuning(run: RunFolder, settled: Settled, data: Dataset, *, minutes: float) -> Tuning:
    """The search around some settings, written down before its first trial.

    Args:
        run: The folder of the run to come.
        settled: The settings to start from; what the user has set stays.
        data: Where validation comes from.
        minutes: Of all trials together.

    Returns:
        The search.

    Raises:
        ConfigError: If there is no validation to judge by, or no time.
    """
    config = settled.config
    if minutes <= 0:
        raise ConfigError(f"--tune must be above 0 minutes, not {minutes:g}")
    if "validation" not in training_splits(data, config):
        raise ConfigError(
            "tuning needs validation queries; give a validation.share above 0 or leave --tune out"
        )
    folder = run.path / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    tuning = Tuning(
        folder=folder,
        base=config,
        reasons=list(settled.reasons),
        candidates=candidates_of(config, settled.told),
        rungs=rungs_of(config.train.epochs),
        seconds=60 * minutes,
    )
    tuning.write()
    return tuning


def is_tuning(run: RunFolder) -> bool:
    """Whether a folder holds a search whose run has not begun."""
    return (run.path / FOLDER / "tuning.json").is_file() and not run.config.is_file()


def candidates_of(config: RunConfig, told: frozenset[str] = frozenset()) -> list[list[str]]:
    """The settings as they are, then changes of one thing each, but none of what the user set."""
    rates = config.train
    assert rates.lr_encoder is not None
    assert rates.lr_heads is not None
    found: list[list[str]] = []
    if {"dual", "classifier"} <= set(config.model.heads):
        found += [["loss.dual_share=0.3"], ["loss.dual_share=0.7"]]
    for factor in (0.5, 2.0):
        found.append(
            [
                f"train.lr_encoder={factor * rates.lr_encoder!r}",
                f"train.lr_heads={factor * rates.lr_heads!r}",
            ]
        )
    if "classifier" in config.model.heads:
        found += [[f"train.lr_labels={factor * rates.lr_labels!r}"] for factor in (0.3, 3.0)]
        found.append(["loss.bce=0.01" if not config.loss.bce else "loss.bce=0.0"])
    other = "gandalf" if config.augment.method == "none" else "none"
    found.append([f"augment.method={other}"])
    keys = [{change.partition("=")[0] for change in changes} for changes in found]
    return [[], *(changes for changes, own in zip(found, keys, strict=True) if not own & told)]


def _named(changes: list[str]) -> str:
    return ", ".join(changes) or "as chosen"
