"""What a fit has decided, as one JSON file: models, tilt, votes, calibration, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.answers.calibration import Calibration
from umpteen.answers.candidates import PARTS
from umpteen.answers.fusion import FusionModel
from umpteen.errors import ConfigError, RunError
from umpteen.files import read_json, write_json
from umpteen.metrics.propensity import inverse_propensities

FORMAT = 1


@dataclass(frozen=True)
class Voting:
    """How neighbours vote."""

    neighbours: int = 50
    temperature: float = 0.1


@dataclass(frozen=True)
class Way:
    """One way to answer: some parts, their model, how rare labels are favoured, probabilities."""

    model: FusionModel
    tilt: float
    """Times the logarithm of the label's inverse propensity, added to the score."""
    calibration: Calibration
    validation: dict[str, float]
    """Cross-fitted metrics on the held-out queries, percent."""
    shares: dict[str, float]
    """Part to its share of what separates the first answer from the others, percent."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What it is made of."""
        return self.model.parts


@dataclass(frozen=True)
class Recipe:
    """All ways that were fitted; the first is the default."""

    ways: tuple[Way, ...]
    voting: Voting
    word_voting: Voting
    propensity: tuple[float, float]
    n_train: int
    model: str
    """The model folder it was fitted for."""
    fitted_on: str
    """What the held-out queries were, in words."""
    rule: str

    def way(self, without: Iterable[str] = ()) -> Way:
        """The default, or the way that leaves some parts out.

        Raises:
            ConfigError: If a part is not known, or no such way was fitted.
        """
        left_out = set(without)
        unknown = left_out - set(PARTS)
        if unknown:
            raise ConfigError(
                f"there is no part {sorted(unknown)[0]!r} to leave out; parts: {', '.join(PARTS)}"
            )
        if not left_out:
            return self.ways[0]
        whole = max((way.parts for way in self.ways), key=len)
        wanted = tuple(part for part in whole if part not in left_out)
        for way in self.ways:
            if way.parts == wanted:
                return way
        ways = "; ".join(", ".join(way.parts) for way in self.ways)
        raise ConfigError(
            f"no answer was fitted without {', '.join(sorted(left_out))}; there are: {ways}"
        )

    def log_inverse_propensities(self, label_counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """(L,) what the tilt is multiplied with."""
        a, b = self.propensity
        return np.log(inverse_propensities(label_counts, self.n_train, a, b))

    def save(self, path: Path) -> None:
        """Write the file."""
        write_json(
            path,
            {
                "format": FORMAT,
                "model": self.model,
                "fitted_on": self.fitted_on,
                "rule": self.rule,
                "n_train": self.n_train,
                "propensity": {"a": self.propensity[0], "b": self.propensity[1]},
                "voting": vars(self.voting),
                "word_voting": vars(self.word_voting),
                "ways": [
                    {
                        "parts": list(way.parts),
                        "tilt": way.tilt,
                        "validation": way.validation,
                        "shares": way.shares,
                        "calibration": way.calibration.as_json(),
                        "fusion": way.model.as_json(),
                    }
                    for way in self.ways
                ],
            },
        )

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Read the file.

        Raises:
            RunError: If it is missing or damaged.
        """
        value = read_json(path, error=RunError)
        try:
            if value["format"] != FORMAT:
                raise RunError(f"{path}: format {value['format']!r}, expected {FORMAT}")
            ways = tuple(_read_way(way) for way in value["ways"])
            given = value["propensity"]
            recipe = cls(
                ways,
                Voting(**value["voting"]),
                Voting(**value["word_voting"]),
                (float(given["a"]), float(given["b"])),
                int(value["n_train"]),
                str(value["model"]),
                str(value["fitted_on"]),
                str(value["rule"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {error!r}; fit it again") from error
        if not ways:
            raise RunError(f"{path} is damaged: it names no way to answer; fit it again")
        return recipe


def _read_way(value: Mapping[str, Any]) -> Way:
    return Way(
        FusionModel.from_json(value["fusion"]),
        float(value["tilt"]),
        Calibration.from_json(value["calibration"]),
        {str(name): float(number) for name, number in value["validation"].items()},
        {str(name): float(number) for name, number in value["shares"].items()},
    )
