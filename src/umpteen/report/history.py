"""What happened while a run was trained: losses, validations, how far it came. Loads no model."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, read_json
from umpteen.run_folder import RunFolder

MAX_POINTS = 300
"""Points of a loss curve; more cannot be distinguished on a screen."""


@dataclass(frozen=True)
class Steps:
    """The step log."""

    steps: NDArray[np.int64]
    losses: NDArray[np.float64]
    epoch: int
    """The epoch of the last step, from 1; 0 before the first."""
    seconds: float
    """Time in training, all parts of a resumed run together."""
    damaged_line: int | None = None
    """The first line that could not be read; those after it were left out."""


@dataclass(frozen=True)
class LossCurve:
    """Losses thinned for drawing; every array is (P,)."""

    steps: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    smooth: NDArray[np.float64]


@dataclass(frozen=True)
class Validation:
    """One validation: epoch and metric values of each head, in percent."""

    epoch: int
    heads: dict[str, dict[str, float]]


@dataclass(frozen=True)
class History:
    """A run's course, from its small files."""

    about: dict[str, Any]
    """``config.json``."""
    steps: Steps | None
    """None without a step log."""
    validations: list[Validation]
    select: str | None
    """The metric that chose the best model, where there was validation."""
    planned: int
    """Epochs the run was to have."""
    finished: bool
    early: bool
    """Whether it ended because validation no longer improved."""
    model_epoch: int | None
    """After which epoch the best model was saved; None where none was saved yet."""

    @property
    def reached(self) -> int:
        """The last epoch anything is known of."""
        seen = [entry.epoch for entry in self.validations]
        return max([*seen, self.steps.epoch if self.steps else 0], default=0)


def read_history(folder: RunFolder) -> History:
    """Read what a run wrote down about itself.

    Args:
        folder: The run.

    Returns:
        The history; parts that were never written are empty.

    Raises:
        RunError: If the folder holds no run, or a file in it is damaged.
    """
    about = read_json(folder.require().config, error=RunError)
    try:
        planned = first = int(about["config"]["train"]["epochs"])
        if second := about["config"].get("stage2"):
            planned += int(second.get("train", {}).get("epochs", planned))
        patience = int(about["config"]["validation"]["patience"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{folder.config} is not the settings file of a run (no {error}); "
            "it was changed by hand or made by another version"
        ) from error
    validations, select, values = _read_validations(folder.metrics)
    if planned > first and validations and validations[-1].epoch > first:
        # Patience counts in each of two stages alone.
        values = values[sum(entry.epoch <= first for entry in validations) :]
    best = int(np.argmax(values)) if values else 0
    early = bool(patience) and len(values) - 1 - best >= patience > 0
    done = folder.model("last").name == f"epoch-{planned:04d}"
    saved = folder.model("best")
    return History(
        about=about,
        steps=read_steps(folder.steps) if folder.steps.is_file() else None,
        validations=validations,
        select=select,
        planned=planned,
        finished=done or early,
        early=early and not done,
        # The model written before the first step has no label vectors and cannot answer.
        model_epoch=_epoch_of(saved) if (saved / "vectors.npy").is_file() else None,
    )


def read_steps(path: Path) -> Steps:
    """Read a step log up to its first damaged line (a killed run cuts the last one short)."""
    numbers, losses, epoch = [], [], 0
    seconds = before = 0.0
    damaged = None
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                entry = json.loads(line)
                step, loss, epoch_here = int(entry["step"]), float(entry["loss"]), entry["epoch"]
                now = float(entry.get("seconds", 0.0))
            except (ValueError, KeyError, TypeError, AttributeError):
                damaged = number
                break
            if not math.isfinite(loss):
                continue
            numbers.append(step)
            losses.append(loss)
            epoch = int(epoch_here)
            # A resumed run counts its seconds from zero again.
            seconds += now - before if now >= before else now
            before = now
    return Steps(np.array(numbers, np.int64), np.array(losses, np.float64), epoch, seconds, damaged)


def loss_curve(steps: Steps, points: int = MAX_POINTS) -> LossCurve:
    """Return the losses in at most so many points: the range of each stretch, and a smoothed line.

    The smoothed line is the mean of a window of a twentieth of the run around each step.
    """
    n = len(steps.losses)
    starts = np.unique(np.linspace(0, n, min(points, n), endpoint=False).astype(np.int64))
    middles = (starts + np.append(starts[1:], n) - 1) // 2
    reach = max(1, n // 40)
    sums = np.concatenate([[0.0], np.cumsum(steps.losses)])
    left, right = np.maximum(middles - reach, 0), np.minimum(middles + reach + 1, n)
    return LossCurve(
        steps=steps.steps[middles].astype(np.float64),
        low=np.minimum.reduceat(steps.losses, starts),
        high=np.maximum.reduceat(steps.losses, starts),
        smooth=(sums[right] - sums[left]) / (right - left),
    )


def _read_validations(path: Path) -> tuple[list[Validation], str | None, list[float]]:
    if not path.is_file():
        return [], None, []
    document = read_json(path, error=RunError)
    try:
        entries = document["validation"]
        validations = [
            Validation(
                int(entry["epoch"]),
                {
                    head: {name: float(value) for name, value in values.items()}
                    for head, values in entry["heads"].items()
                },
            )
            for entry in entries
        ]
        measured = [[(h, *sorted(v)) for h, v in each.heads.items()] for each in validations]
        if any(each != measured[0] for each in measured):
            raise ValueError("its entries have different heads or metrics")
        return validations, str(document["select"]), [float(entry["value"]) for entry in entries]
    except LOAD_ERRORS as error:
        raise RunError(
            f"{path} is not the validation history of a run ({error}); restore it, or remove it "
            "to leave the curves out"
        ) from error


def _epoch_of(model: Path) -> int | None:
    number = model.name.rpartition("-")[2]
    return int(number) if number.isdigit() else None
