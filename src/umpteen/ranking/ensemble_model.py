"""The fitted ensemble as one JSON file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from umpteen.errors import ConfigError, RunError
from umpteen.files import read_json, write_json
from umpteen.ranking.reranking.spec import RERANKER
from umpteen.ranking.retriever_specs import SCORERS
from umpteen.ranking.variants import PropensityModel, Variant

FORMAT = 2
FIELDS = {
    "format", "model", "fitted_on", "propensity", "knn", "lexical_knn", "similarity_floor",
    "variants",
}  # fmt: skip


@dataclass(frozen=True)
class KnnConfig:
    """How the nearest examples vote."""

    neighbours: int = 50
    temperature: float = 0.1
    background: float | None = None
    """Similarity of a neighbour without labels that votes as well; None for no such neighbour. With
    it, far examples have little weight even where there are no nearer ones."""


@dataclass(frozen=True)
class EnsembleModel:
    """All variants that were fitted; the first is the default."""

    variants: tuple[Variant, ...]
    knn: KnnConfig
    lexical_knn: KnnConfig
    propensity: PropensityModel
    model: str
    """Name of the model folder it was fitted for."""
    fitted_on: str
    """What the validation queries were, for people; see ``is_fitted``."""
    similarity_floor: float = -math.inf
    """Similarity of the nearest example below which an example is not similar."""

    @property
    def is_fitted(self) -> bool:
        """Whether weights were fitted to validation queries; otherwise they are prior weights."""
        return bool(self.variants[0].validation)

    @property
    def n_train(self) -> int:
        """Training texts."""
        return self.propensity.n_train

    def variant(self, without: Iterable[str] = ()) -> Variant:
        """Return the default variant, or the one that leaves some scorers out.

        Raises:
            ConfigError: If a scorer is unknown or no such variant was fitted.
        """
        left_out = set(without)
        if not left_out:
            return self.variants[0]
        whole = max((variant.scorers for variant in self.variants), key=len)
        known = dict.fromkeys([*SCORERS, *whole, RERANKER])
        unknown = left_out - set(known)
        if unknown:
            raise ConfigError(
                f"There is no scorer {sorted(unknown)[0]!r}; use one of {', '.join(known)}."
            )
        # The re-ranker was fitted with all scorers: without one of them it is left out too.
        wanted = tuple(scorer for scorer in whole if scorer not in {*left_out, RERANKER})
        for variant in self.variants:
            if variant.scorers == wanted:
                return variant
        fitted = "; ".join(", ".join(variant.scorers) for variant in self.variants)
        raise ConfigError(
            f"No variant was fitted without {', '.join(sorted(left_out))}. Fitted: {fitted}."
        )

    def save(self, path: Path) -> None:
        """Write the file."""
        floor = self.similarity_floor
        write_json(
            path,
            {
                "format": FORMAT,
                "model": self.model,
                "fitted_on": self.fitted_on,
                "propensity": asdict(self.propensity),
                "knn": asdict(self.knn),
                "lexical_knn": asdict(self.lexical_knn),
                "similarity_floor": floor if math.isfinite(floor) else None,
                "variants": [variant.as_json() for variant in self.variants],
            },
        )

    @classmethod
    def load(cls, path: Path) -> EnsembleModel:
        """Read the file.

        Raises:
            RunError: If the file is missing or damaged.
        """
        value = read_json(path, error=RunError)
        try:
            if value["format"] != FORMAT:
                raise ValueError(f"format {value['format']!r}, expected {FORMAT}")
            if set(value) != FIELDS:
                raise ValueError(f"fields {sorted(value)}")
            variants = tuple(Variant.from_json(each) for each in value["variants"])
            if not variants:
                raise ValueError("no variant")
            floor = value["similarity_floor"]
            return cls(
                variants,
                _knn(value["knn"]),
                _knn(value["lexical_knn"]),
                _propensity(value["propensity"]),
                _text(value["model"]),
                _text(value["fitted_on"]),
                -math.inf if floor is None else float(floor),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RunError) as error:
            raise RunError(f"{path} is damaged: {error}. Fit the ensemble again.") from error


def _knn(value: Mapping[str, Any]) -> KnnConfig:
    config = KnnConfig(**value)
    whole = isinstance(config.neighbours, int) and not isinstance(config.neighbours, bool)
    background = 0.0 if config.background is None else float(config.background)
    finite = float(config.temperature) > 0 and math.isfinite(background)
    if not whole or config.neighbours < 1 or not finite:
        raise ValueError(f"knn settings {dict(value)}")
    return config


def _propensity(value: Mapping[str, Any]) -> PropensityModel:
    found = PropensityModel(float(value["a"]), float(value["b"]), int(value["n_train"]))
    if not (math.isfinite(found.a) and math.isfinite(found.b) and found.n_train >= 0):
        raise ValueError(f"propensity {dict(value)}")
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value
