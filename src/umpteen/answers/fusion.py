"""The model that fuses views: a conditional logit over a query's candidates, few weights, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.answers.candidates import VIEWS, Candidates
from umpteen.answers.features import counts_of, feature_parts, features, no_votes
from umpteen.answers.untrained import Trust, fit_trust, hide, text_features, text_parts, turns
from umpteen.errors import RunError

ITERATIONS = 60
LOW = -1e9


@dataclass(frozen=True)
class FusionModel:
    """Scores of candidates: weights times standardised features; comparable within a query only."""

    views: tuple[str, ...]
    mean: NDArray[np.float64]
    """(F,) of the features, where it was fitted."""
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    trust: Trust | None = None
    """For labels without training queries, of which F features say nothing; None in recipes that
    were fitted before there was one."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts its views belong to."""
        return tuple(dict.fromkeys(VIEWS[view] for view in self.views))

    def features(
        self, candidates: Candidates, label_counts: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """(C, F), standardised; with ``trust`` (C, F + U).

        A label has the first F or, without training queries, the last U and of the first what its
        votes say beyond having none; the others are 0.
        """
        raw = features(candidates, self.views, label_counts)
        given = (raw - self.mean) / self.scale
        if self.trust is None:
            return given
        untrained = counts_of(candidates, label_counts) == 0
        of_votes, nothing = no_votes(self.views)
        given[untrained] = np.where(of_votes, (raw[untrained] - nothing) / self.scale, 0.0)
        own = (text_features(candidates, self.views) - self.trust.mean) / self.trust.scale
        return np.concatenate([given, np.where(untrained[:, None], own, 0.0)], axis=1)

    def scores(self, given: NDArray[np.float64]) -> NDArray[np.float64]:
        """(C,) from standardised features."""
        return given @ self._weights

    @property
    def _weights(self) -> NDArray[np.float64]:
        if self.trust is None:
            return self.weights
        return np.concatenate([self.weights, self.trust.weights])

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
        own = text_parts(self.views) if self.trust is not None else []
        owners = np.array([*feature_parts(self.views), *own])
        added = (given - average) * self._weights
        return {part: added[:, owners == part].sum(axis=1) for part in (*self.parts, "frequency")}

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        names = ("mean", "scale", "weights")
        value = {"views": list(self.views), **{n: getattr(self, n).tolist() for n in names}}
        return value if self.trust is None else {**value, "untrained": self.trust.as_json()}

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
            mean, scale, weights = (
                np.array(value[name], np.float64).reshape(size) for name in names
            )
            trust = None
            if "untrained" in value:
                trust = Trust.from_json(value["untrained"], len(text_parts(views)))
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"a fusion model is damaged ({error!r}); fit it again") from error
        return cls(views, mean, scale, weights, trust)


def fit_fusion(
    candidates: Candidates,
    positive: NDArray[np.bool_],
    views: tuple[str, ...],
    label_counts: NDArray[np.int64],
    *,
    decay: float = 3e-3,
) -> FusionModel:
    """Fit on held-out queries: each positive's softmax among the wrong candidates and itself.

    Positives do not compete: where they share one softmax, a query with two of them asks for a
    half each, and a model that is sure of the first place is punished for it.

    Labels without training queries take no part: see ``with_trust``.

    Args:
        candidates: Of queries that no part was trained on.
        positive: (C,) which are right; queries without one teach nothing.
        views: What to read.
        label_counts: (L,) training queries of labels.
        decay: Weight of the squared weights.

    Returns:
        The model.
    """
    trained = counts_of(candidates, label_counts) > 0
    raw = features(candidates, views, label_counts)[trained]
    mean, scale = raw.mean(axis=0), raw.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    given = torch.from_numpy((raw - mean) / scale)
    right = torch.from_numpy(positive[trained].astype(np.float64))
    queries = torch.from_numpy(candidates.queries[trained])
    n = candidates.n_queries
    per_query = torch.zeros(n, dtype=torch.float64).index_add(0, queries, right)
    wanted = right / per_query.clamp_min(1.0)[queries]
    weights = torch.zeros(given.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        scores = given @ weights
        others = torch.where(right > 0, -torch.inf, scores)
        # A number, not -inf, for queries whose candidates are all right: they teach nothing.
        best = torch.full((n,), LOW, dtype=torch.float64)
        best = best.scatter_reduce(0, queries, others.detach(), "amax")
        powers = torch.exp(others - best[queries])
        total = torch.zeros(n, dtype=torch.float64).index_add(0, queries, powers)
        against = best + total.clamp_min(1e-300).log()
        short = torch.nn.functional.softplus(against[queries] - scores)
        value = (wanted * short).sum() / wanted.sum().clamp_min(1.0)
        value = value + decay * (weights**2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return FusionModel(views, mean, scale, weights.detach().numpy())


def with_trust(
    model: FusionModel,
    candidates: Candidates,
    positive: NDArray[np.bool_],
    words: NDArray[np.float32] | None,
    label_counts: NDArray[np.int64],
    *,
    seed: int,
) -> FusionModel:
    """The model with weights for labels without training queries, fitted by hiding labels.

    Tenths of the labels in turn are scored as if they had been added after training, against the
    others, whose scores the model gives as ever. Labels that have no training query in earnest
    take part where one of them is right; where held-out queries were chosen so that every label
    keeps a query, none can be, and they would teach that such labels never are.

    Args:
        model: Fitted to labels with training queries.
        candidates: Of queries that no part was trained on.
        positive: (C,) which are right.
        words: (C,) what their texts alone would say (``words_of_texts``); None without words.
        label_counts: (L,) training queries of labels.
        seed: Of the choice of labels.

    Returns:
        A copy.
    """
    untrained = counts_of(candidates, label_counts) == 0
    teaching = ~untrained | bool(positive[untrained].any())
    given, scores, asked, hidden, right = [], [], [], [], []
    for turn, chosen in enumerate(turns(len(label_counts), int(positive.sum()), seed)):
        out = untrained | np.append(chosen, True)[np.minimum(candidates.rows, len(chosen))]
        seen = hide(candidates, out, words)
        counts = np.where(chosen, 0, label_counts)
        own = replace(model, trust=None)
        scores.append(own.scores(own.features(seen, counts))[teaching])
        given.append(text_features(seen, model.views)[teaching])
        asked.append((candidates.queries + turn * candidates.n_queries)[teaching])
        hidden.append(out[teaching])
        right.append(positive[teaching])
    joined = [np.concatenate(each) for each in (given, scores, asked, hidden, right)]
    return replace(model, trust=fit_trust(*joined)) if joined[3].any() else model
