"""The model that fuses views: a conditional logit over a query's candidates, few weights, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.answers.candidates import VIEWS, Candidates
from umpteen.answers.features import feature_parts, features
from umpteen.errors import RunError

ITERATIONS = 60


@dataclass(frozen=True)
class FusionModel:
    """Scores of candidates: weights times standardised features; comparable within a query only."""

    views: tuple[str, ...]
    mean: NDArray[np.float64]
    """(F,) of the features, where it was fitted."""
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts its views belong to."""
        return tuple(dict.fromkeys(VIEWS[view] for view in self.views))

    def features(
        self, candidates: Candidates, label_counts: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """(C, F), standardised."""
        return (features(candidates, self.views, label_counts) - self.mean) / self.scale

    def scores(self, given: NDArray[np.float64]) -> NDArray[np.float64]:
        """(C,) from standardised features."""
        return given @ self.weights

    def shares(
        self, given: NDArray[np.float64], average: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Part to (C,): what the score would lose if the part said what it says on average.

        Args:
            given: (C, F) standardised.
            average: (C, F) the query's mean over its candidates.

        Returns:
            The parts and ``frequency``; they add up to the score minus the query's mean score.
        """
        owners = np.array(feature_parts(self.views))
        added = (given - average) * self.weights
        return {part: added[:, owners == part].sum(axis=1) for part in (*self.parts, "frequency")}

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        names = ("mean", "scale", "weights")
        return {"views": list(self.views), **{n: getattr(self, n).tolist() for n in names}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FusionModel:
        """The model of ``as_json``.

        Raises:
            RunError: If the values do not fit.
        """
        try:
            views = tuple(value["views"])
            size = len(feature_parts(views))
            names = ("mean", "scale", "weights")
            arrays = [np.array(value[name], np.float64).reshape(size) for name in names]
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"a fusion model is damaged ({error!r}); fit it again") from error
        return cls(views, *arrays)


def fit_fusion(
    candidates: Candidates,
    positive: NDArray[np.bool_],
    views: tuple[str, ...],
    label_counts: NDArray[np.int64],
    *,
    decay: float = 3e-3,
) -> FusionModel:
    """Fit on held-out queries: softmax over a query's candidates, mean over its positives.

    Args:
        candidates: Of queries that no part was trained on.
        positive: (C,) which are right; queries without one teach nothing.
        views: What to read.
        label_counts: (L,) training queries of labels.
        decay: Weight of the squared weights.

    Returns:
        The model.
    """
    raw = features(candidates, views, label_counts)
    mean, scale = raw.mean(axis=0), raw.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    given = torch.from_numpy((raw - mean) / scale)
    right = torch.from_numpy(positive.astype(np.float64))
    queries = torch.from_numpy(candidates.queries)
    n = candidates.n_queries
    per_query = torch.zeros(n, dtype=torch.float64).index_add(0, queries, right)
    wanted = right / per_query.clamp_min(1.0)[queries]
    weights = torch.zeros(given.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        scores = given @ weights
        best = torch.full((n,), -torch.inf, dtype=torch.float64)
        best = best.scatter_reduce(0, queries, scores.detach(), "amax")
        powers = torch.exp(scores - best[queries])
        total = torch.zeros(n, dtype=torch.float64).index_add(0, queries, powers)
        log_shares = scores - best[queries] - total.log()[queries]
        value = -(wanted * log_shares).sum() / wanted.sum().clamp_min(1.0)
        value = value + decay * (weights**2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return FusionModel(views, mean, scale, weights.detach().numpy())
