"""A study's results: read, put together over seeds, and written as one Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.head_names import ENSEMBLE
from umpteen.study.definition import Study
from umpteen.study.outcomes import result_file


@dataclass(frozen=True)
class Cell:
    """The runs of one data set, preset and switch, over seeds."""

    data: str
    preset: str
    switch: str
    results: tuple[dict[str, Any], ...]
    wanted: str = ""
    """The head that counts, where the model has it."""

    @property
    def best(self) -> str:
        """The head of table and plots: the wanted one, or the last of the model's own."""
        return best_head(self.heads, self.wanted)

    @property
    def heads(self) -> tuple[str, ...]:
        """Heads of the model, then the ensemble where there is one."""
        return tuple(self.results[0]["heads"])

    def values(self, head: str, metric: str) -> np.ndarray:
        """Return (S,) one value per seed."""
        return np.array([result["heads"][head]["metrics"][metric] for result in self.results])

    def bins(self, head: str) -> np.ndarray:
        """Return (bins,) what each frequency bin brings to P@5, head to tail, mean over seeds."""
        return np.array([result["heads"][head]["bins"] for result in self.results]).mean(axis=0)

    def curve(self, head: str, metric: str, against: str = "epoch") -> tuple[list, list]:
        """Return validation over epochs or steps, mean over seeds; places that all seeds have.

        Empty for a head that is not validated (the ensemble is fitted at the end).
        """
        by_place: dict[int, list[float]] = {}
        for result in self.results:
            for entry in result["validation"]:
                values = entry["heads"].get(head, {})
                if metric in values:
                    by_place.setdefault(int(entry[against]), []).append(values[metric])
        whole = {at: ys for at, ys in sorted(by_place.items()) if len(ys) == len(self.results)}
        return list(whole), [float(np.mean(ys)) for ys in whole.values()]


def best_head(heads: Iterable[str], wanted: str = "") -> str:
    """Return the wanted head where it is among these, else the last one but the ensemble."""
    heads = list(heads)
    own = [head for head in heads if head != ENSEMBLE] or heads
    return wanted if wanted in heads else own[-1]


def read_cells(study: Study, out: str | Path) -> list[Cell]:
    """Return the results that are there, in the order of the study.

    One without a metric that the study names by now is missing: the run is to be made again.

    Raises:
        RunError: If a file is damaged.
    """
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in study.runs():
        file = result_file(Path(out), run)
        if not file.is_file():
            continue
        result = read_json(file, error=RunError)
        if not isinstance(result, dict) or not {"heads", "validation"} <= set(result):
            raise RunError(f"{file} is not the result of a run; remove it to make the run again")
        if not all(set(study.metrics) <= set(each["metrics"]) for each in result["heads"].values()):
            continue
        place = (run.source.name, run.preset, run.switch.name)
        cells.setdefault(place, []).append(result)
    return [Cell(*place, tuple(results), study.head) for place, results in cells.items()]


def table(study: Study, cells: Sequence[Cell], *, heads: str = "best") -> str:
    """Return one Markdown table: mean, and where there are several seeds the standard deviation.

    Args:
        study: Its metrics are the columns.
        cells: From ``read_cells``.
        heads: ``best`` for the one that counts, ``all`` for every head.

    Returns:
        The table, with a line above it that says how many runs are missing.
    """
    columns = ["data", "preset", "switch", "head", *study.metrics, "seeds", "steps", "s", "GiB"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for cell in cells:
        for head in cell.heads if heads == "all" else (cell.best,):
            row = [cell.data, cell.preset, cell.switch, head]
            row += [mean_and_spread(cell.values(head, metric)) for metric in study.metrics]
            row += [str(len(cell.results)), f"{_mean(cell, 'steps'):.0f}"]
            row += [f"{_mean(cell, 'train_seconds'):.0f}", f"{_mean(cell, 'peak_gib'):.2f}"]
            lines.append("| " + " | ".join(row) + " |")
    missing = len(study.runs()) - sum(len(cell.results) for cell in cells)
    said = [f"{missing} of {len(study.runs())} runs are missing.", ""] if missing else []
    return "\n".join([*said, *lines]) + "\n"


def as_json(study: Study, cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the table as values: mean and spread of every metric of every head."""
    return {
        "name": study.name,
        "runs": len(study.runs()),
        "rows": [
            {
                "data": cell.data,
                "preset": cell.preset,
                "switch": cell.switch,
                "head": head,
                "seeds": len(cell.results),
                "mean": {m: float(cell.values(head, m).mean()) for m in study.metrics},
                "spread": {m: _deviation(cell.values(head, m)) for m in study.metrics},
                "bins": cell.bins(head).tolist(),
                "train_seconds": _mean(cell, "train_seconds"),
                "peak_gib": _mean(cell, "peak_gib"),
            }
            for cell in cells
            for head in cell.heads
        ],
    }


def _mean(cell: Cell, key: str) -> float:
    return float(np.mean([result[key] for result in cell.results]))


def _deviation(values: np.ndarray) -> float | None:
    """Return the standard deviation between seeds; None for one seed."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def mean_and_spread(values: np.ndarray) -> str:
    """Format a mean. The mean, and the standard deviation where there are several values."""
    deviation = _deviation(values)
    return f"{values.mean():.2f}" + ("" if deviation is None else f" ±{deviation:.2f}")
