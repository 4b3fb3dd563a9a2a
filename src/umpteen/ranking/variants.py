"""A variant: one combination of scorers with its weights, tail boost and calibration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.errors import RunError
from umpteen.ranking.calibration import Calibration
from umpteen.ranking.candidates import Candidates
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.reranking.spec import RERANKER, Reranking
from umpteen.ranking.retriever_specs import SCORERS, scorers_of
from umpteen.ranking.tail_boost import MAX_LOSS, log_inverse_propensities

VARIANT_METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
"""What variants are compared by."""


@dataclass(frozen=True)
class PropensityModel:
    """Constants of the propensity model, and the number of training texts."""

    a: float
    b: float
    n_train: int

    def log_inverse(self, counts: Tensor) -> Tensor:
        """Return the logarithm of the inverse propensity of labels with these counts."""
        return log_inverse_propensities(counts, self.n_train, self.a, self.b)


@dataclass(frozen=True)
class Variant:
    """Everything that ranks candidates with some scorers."""

    weights: EnsembleWeights
    tail_boost: float
    """Factor of the logarithm of the label's inverse propensity, added to the score."""
    calibration: Calibration
    validation: dict[str, float]
    """Cross-fitted metrics on the validation queries, percent; empty without queries."""
    contributions: dict[str, float]
    """Scorer to its share of what separates the first answer from the others, percent."""
    reranking: Reranking | None = None
    """How its best candidates are scored again, where they are."""

    @property
    def scorers(self) -> tuple[str, ...]:
        """The scorers it uses."""
        own = self.weights.scorers
        return own if self.reranking is None else (*own, RERANKER)

    @property
    def retrievers(self) -> tuple[str, ...]:
        """The retrievers it reads."""
        return self.weights.retrievers

    @property
    def converged(self) -> bool:
        """Whether all of its fits converged."""
        unseen = self.weights.unseen
        return (
            self.weights.converged
            and self.calibration.converged
            and (unseen is None or unseen.converged)
        )

    def scores(
        self,
        candidates: Candidates,
        propensity: PropensityModel,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Score candidates, tail boost included.

        Args:
            candidates: With the scores of ``retrievers``.
            propensity: Of the training data.
            dtype: Of the computation.

        Returns:
            (B, K); -inf at padding places.
        """
        scores = self.weights.scores(candidates, dtype)
        if self.tail_boost:
            scores.add_(propensity.log_inverse(candidates.counts.to(dtype)), alpha=self.tail_boost)
        return scores

    def probabilities(self, scores: Tensor, candidates: Candidates) -> Tensor:
        """Compute the (B, K) probabilities from ``scores``; 0 at padding places."""
        return self.calibration.probabilities(scores, candidates)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "scorers": list(self.scorers),
            "tail_boost": self.tail_boost,
            "validation": self.validation,
            "contributions": self.contributions,
            "calibration": self.calibration.as_json(),
            "weights": self.weights.as_json(),
            "reranking": None if self.reranking is None else self.reranking.as_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Variant:
        """Read the values of ``as_json``.

        Raises:
            RunError: If the values are damaged.
        """
        try:
            boost = float(value["tail_boost"])
            validation, contributions = (
                {str(name): float(number) for name, number in value[part].items()}
                for part in ("validation", "contributions")
            )
            weights = EnsembleWeights.from_json(value["weights"])
            calibration = Calibration.from_json(value["calibration"])
            stored = value.get("reranking")  # runs of before have none
            reranking = None if stored is None else Reranking.from_json(stored)
            made = cls(weights, boost, calibration, validation, contributions, reranking)
            if not np.isfinite(boost) or tuple(value["scorers"]) != made.scorers:
                raise ValueError("scorers or tail boost do not fit the weights")
            if calibration.retrievers != weights.retrievers:
                raise ValueError("the calibration is of other retrievers")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"A variant is damaged ({error!r}); fit the ensemble again.") from error
        return made


def scorer_combinations(retrievers: Iterable[str]) -> list[tuple[str, ...]]:
    """List the combinations of scorers to fit: all, all but one, and the model's heads alone.

    Example:
        >>> scorer_combinations(["dual", "knn"])
        [('dual', 'knn'), ('knn',), ('dual',)]
    """
    present = scorers_of(retrievers)
    ordered = dict.fromkeys([*SCORERS, *present])  # scorers of added retrievers come last
    whole = tuple(scorer for scorer in ordered if scorer in present)
    heads = tuple(scorer for scorer in whole if scorer in ("dual", "classifier"))
    fewer = [tuple(s for s in whole if s != left_out) for left_out in whole]
    return [scorers for scorers in dict.fromkeys([whole, *fewer, heads]) if scorers]


def relative_quality(values: Mapping[str, float], reference: Mapping[str, float]) -> float:
    """Compare metrics with a reference: the mean ratio, less every shortfall.

    Example:
        >>> gained = dict.fromkeys(VARIANT_METRICS, 44.0)
        >>> reference = dict.fromkeys(VARIANT_METRICS, 40.0)
        >>> round(relative_quality(gained, reference), 3)
        1.1
        >>> round(relative_quality({**gained, "PSP@1": 39.0}, reference), 3)  # 5.975 / 6 - 0.025
        1.054
    """
    ratios = np.array(
        [values[m] / reference[m] if reference[m] > 0 else 1.0 for m in VARIANT_METRICS]
    )
    return float(ratios.mean() - np.maximum(0.0, 1.0 - ratios).sum())


def choose_variant(
    validation: Sequence[Mapping[str, float]], reference: Mapping[str, float], n_queries: int
) -> int:
    """Choose the default variant: the first, unless another one is better by more than chance.

    Args:
        validation: Metrics of each variant, the one with all scorers first.
        reference: Those of the best head alone.
        n_queries: Validation queries.

    Returns:
        The position. Another variant must not lose more precision than ``MAX_LOSS`` and one right
        answer, and must gain more than 3 over the square root of the number of queries.

    Example:
        >>> reference = dict.fromkeys(VARIANT_METRICS, 40.0)
        >>> first = dict.fromkeys(VARIANT_METRICS, 44.0)
        >>> second = dict.fromkeys(VARIANT_METRICS, 44.8)
        >>> choose_variant([first, second], reference, 20_000)  # better by 0.02 of 0.0212
        0
        >>> choose_variant([first, second], reference, 40_000)
        1
    """
    if n_queries == 0:
        return 0
    least = {
        name: (1 - MAX_LOSS) * validation[0][name] - 100.0 / (n_queries * int(name[2:]))
        for name in VARIANT_METRICS[:3]
    }
    values = [
        relative_quality(each, reference)
        if all(each[name] >= low for name, low in least.items())
        else -np.inf
        for each in validation
    ]
    best = int(np.argmax(values))
    return best if values[best] - values[0] > 3.0 / np.sqrt(n_queries) else 0
