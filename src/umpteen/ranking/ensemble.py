"""Ensemble weights: one score per candidate, linear in its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.errors import RunError
from umpteen.ranking.candidates import Candidates
from umpteen.ranking.features import NO_VOTES, columns, feature_owners
from umpteen.ranking.retriever_specs import FREQUENCY, RETRIEVER_SPECS, scorers_of
from umpteen.ranking.unseen_labels import UnseenWeights, read_finite, text_feature_owners

Coefficients = tuple[list[float], dict[str, float]]


@dataclass(frozen=True)
class EnsembleWeights:
    """Weights of standardized features; scores are comparable within a query only."""

    retrievers: tuple[str, ...]
    mean: NDArray[np.float64]
    """(F,) of the features."""
    scale: NDArray[np.float64]
    """(F,) of the features."""
    weights: NDArray[np.float64]
    """(F,) of the standardized features."""
    unseen: UnseenWeights | None = None
    """For labels without training texts; without it they are scored like the others."""
    converged: bool = True
    """Whether the fit converged."""

    @property
    def scorers(self) -> tuple[str, ...]:
        """The scorers of its retrievers."""
        return scorers_of(self.retrievers)

    def scores(self, candidates: Candidates, dtype: torch.dtype = torch.float32) -> Tensor:
        """Score candidates.

        Args:
            candidates: With the scores of ``retrievers``.
            dtype: Of the computation.

        Returns:
            (B, K); -inf at padding places.
        """
        (seen, constants), unseen = self._seen, self._unseen
        trained = candidates.counts > 0
        if unseen is not None and trained.device.type == "cpu":
            # Most batches have none. A GPU would have to wait for the answer.
            unseen = None if bool((trained | ~candidates.valid).all()) else unseen
        shape, device = candidates.rows.shape, candidates.rows.device
        total = torch.full(shape, sum(constants.values()), dtype=dtype, device=device)
        other = None
        if unseen is not None:
            other = torch.full(shape, sum(unseen[1].values()), dtype=dtype, device=device)
        for place, column in enumerate(columns(candidates, self.retrievers, dtype)):
            total.add_(column, alpha=seen[place])
            if unseen is not None and other is not None and unseen[0][place]:
                other.add_(column, alpha=unseen[0][place])
        if other is not None:
            total = torch.where(trained, total, other)
        return candidates.filled(total, -torch.inf)

    def contributions(
        self, candidates: Candidates, dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Split the scores by scorer.

        A contribution is what the score would lose if the scorer gave the label the average of the
        query's candidates.

        Args:
            candidates: Those that were ranked.
            dtype: Of the computation.

        Returns:
            Scorer, or ``frequency``, to (B, K), 0 at padding places. The contributions add up to
            the score minus the query's mean score.
        """
        valid = candidates.valid
        sizes = valid.sum(dim=1, keepdim=True).clamp_min(1)
        split = {}
        for name, part in self.parts(candidates, dtype).items():
            part = torch.where(valid, part, 0.0)
            split[name] = torch.where(valid, part - part.sum(dim=1, keepdim=True) / sizes, 0.0)
        return split

    def scaled(self, factors: Mapping[str, float]) -> EnsembleWeights:
        """Return weights whose scores have each scorer's part times a factor.

        Args:
            factors: Of every scorer and of ``frequency``.
        """
        owners = map(_scorer, feature_owners(self.retrievers))
        own = self.weights * np.array([factors[owner] for owner in owners])
        unseen = self.unseen
        if unseen is not None:
            owners = map(_scorer, text_feature_owners(self.retrievers))
            times = np.array([factors[owner] for owner in owners])
            unseen = replace(unseen, weights=unseen.weights * times)
        return replace(self, weights=own, unseen=unseen)

    def parts(self, candidates: Candidates, dtype: torch.dtype) -> dict[str, Tensor]:
        """Compute each scorer's part of the score; values at padding are arbitrary."""
        owners = [_scorer(name) for name in feature_owners(self.retrievers)]
        (seen, seen_constants), unseen = self._seen, self._unseen
        trained = candidates.counts > 0
        shape, device = candidates.rows.shape, candidates.rows.device
        parts: dict[str, Tensor] = {}
        others: dict[str, Tensor] = {}
        for scorer in (*self.scorers, FREQUENCY):
            parts[scorer] = torch.full(shape, seen_constants[scorer], dtype=dtype, device=device)
            if unseen is not None:
                others[scorer] = torch.full(shape, unseen[1][scorer], dtype=dtype, device=device)
        for place, column in enumerate(columns(candidates, self.retrievers, dtype)):
            parts[owners[place]].add_(column, alpha=seen[place])
            if unseen is not None and unseen[0][place]:
                others[owners[place]].add_(column, alpha=unseen[0][place])
        if unseen is None:
            return parts
        return {name: torch.where(trained, part, others[name]) for name, part in parts.items()}

    @cached_property
    def _seen(self) -> Coefficients:
        """Coefficients of raw features, and each scorer's constant."""
        raw = self.weights / self.scale
        owners = np.array([_scorer(name) for name in feature_owners(self.retrievers)])
        constants = {
            scorer: -float((raw * self.mean)[owners == scorer].sum())
            for scorer in (*self.scorers, FREQUENCY)
        }
        return raw.tolist(), constants

    @cached_property
    def _unseen(self) -> Coefficients | None:
        """The same for unseen labels: text features, and votes beyond having none."""
        if self.unseen is None:
            return None
        raw = np.zeros(len(self.weights))
        constants = dict.fromkeys((*self.scorers, FREQUENCY), 0.0)
        owners = np.array(feature_owners(self.retrievers))
        own = self.unseen.weights / self.unseen.scale
        text_owners = np.array(text_feature_owners(self.retrievers))
        for name in self.retrievers:
            spec, places = RETRIEVER_SPECS[name], np.flatnonzero(owners == name)[:-1]
            if spec.kind == "votes":
                raw[places] = (self.weights / self.scale)[places]
                constants[spec.scorer] -= float(raw[places] @ np.array(NO_VOTES))
            elif spec.reads_label_text:
                raw[places] = own[text_owners == name]
                mean = self.unseen.mean[text_owners == name]
                constants[spec.scorer] -= float(raw[places] @ mean)
        constants[FREQUENCY] = float(own[-1] * (1.0 - self.unseen.mean[-1]))
        return raw.tolist(), constants

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        names = ("mean", "scale", "weights")
        return {
            "retrievers": list(self.retrievers),
            **{name: getattr(self, name).tolist() for name in names},
            "unseen": None if self.unseen is None else self.unseen.as_json(),
            "converged": self.converged,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EnsembleWeights:
        """Read the values of ``as_json``.

        Raises:
            RunError: If the values are damaged.
        """
        try:
            retrievers = tuple(value["retrievers"])
            size = len(feature_owners(retrievers))
            mean, scale, weights = read_finite(value, ("mean", "scale", "weights"), size)
            unseen = None
            if value["unseen"] is not None:
                size = len(text_feature_owners(retrievers))
                unseen = UnseenWeights.from_json(value["unseen"], size)
            return cls(retrievers, mean, scale, weights, unseen, bool(value["converged"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"The ensemble weights are damaged ({error!r}); fit the ensemble again."
            ) from error


def _scorer(owner: str) -> str:
    return owner if owner == FREQUENCY else RETRIEVER_SPECS[owner].scorer
