"""Fit ensemble weights on validation queries: a conditional logit with a ridge toward a prior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.features import feature_owners, matrix
from umpteen.ranking.retriever_specs import FREQUENCY
from umpteen.ranking.solver import Loss, minimize_convex, prior_ridge
from umpteen.ranking.unseen_labels import (
    UnseenWeights,
    fit_unseen_weights,
    hidden_labels,
    hide,
    text_matrix,
)

DECAY = 3e-3
"""Ridge of the mean loss at any number of queries."""
ENOUGH_QUERIES = 20
"""Queries from which on means and scales come from the data instead of the prior."""
MAX_QUERIES = 6000
"""Queries to fit on; more do not change some twenty weights."""


def fit_ensemble(
    candidates: Candidates,
    positive: Tensor,
    retrievers: tuple[str, ...],
    *,
    prior: EnsembleWeights | None = None,
    decay: float = DECAY,
    max_count: int = 0,
) -> EnsembleWeights:
    """Fit the weights of labels with training texts.

    The loss of a query is the mean over its positives of the negative log-softmax of the positive
    among the wrong candidates and itself. Positives do not compete with each other. The ridge
    ``decay + prior_ridge(n)`` pulls the weights toward the prior; without one, ``decay`` pulls
    them toward 0. More evidence of a retriever never lowers a label, see ``MonotoneWeights``.

    Labels without training texts take no part; see ``fit_unseen``.

    Args:
        candidates: Of queries that no scorer was trained on.
        positive: (B, K) which candidates are right.
        retrievers: Which to read.
        prior: Weights of the same retrievers; with no usable query they are returned.
        decay: Ridge.
        max_count: Largest number of training texts of a label, where no candidate has as many.

    Returns:
        The weights, with the prior's weights for unseen labels.
    """
    usable = (positive & candidates.seen).any(dim=1) & (~positive & candidates.seen).any(dim=1)
    chosen = usable.nonzero()[:, 0]
    n = len(chosen)
    if n == 0 and prior is not None:
        return prior
    if n > MAX_QUERIES:
        places = torch.linspace(0, n - 1, MAX_QUERIES, dtype=torch.float64).long()
        chosen = chosen[places.to(chosen.device)]
    own, right = candidates.select(chosen), positive[chosen]
    part = own.seen
    raw = matrix(own, retrievers)
    mean, scale = _moments(raw[part], prior if n < ENOUGH_QUERIES else None)
    center = np.zeros(raw.shape[2])
    if prior is not None:
        decay += prior_ridge(n)
        center = prior.weights / prior.scale * scale
    inputs = raw.sub_(_like(mean, raw)).div_(_like(scale, raw))
    inputs *= part[:, :, None]
    loss = ConditionalLogit(inputs, right & part, ~right & part, center, decay)
    most = max(max_count, int(own.counts.max()) if own.counts.numel() else 0)
    monotone = MonotoneWeights(retrievers, scale, most)
    solution = minimize_convex(
        monotone.loss(loss), monotone.nearest(center), name="ensemble weights", lower=monotone.lower
    )
    weights, unseen = monotone.weights(solution.x), None if prior is None else prior.unseen
    return EnsembleWeights(retrievers, mean, scale, weights, unseen, solution.converged)


class MonotoneWeights:
    """Weights with which a larger score of any retriever never lowers a label.

    Each column of a retriever rises with its score; the last one is the first times the logarithm
    of the label's training texts. The parameters are the weights, but in place of each of these
    last weights the slope of the first column for the most frequent label. Parameters of retrievers
    are 0 or more, hence slopes for labels of any frequency.

    Args:
        retrievers: Which have weights.
        scale: (F,) of the features.
        max_count: Training texts of the most frequent label.
    """

    def __init__(
        self, retrievers: tuple[str, ...], scale: NDArray[np.float64], max_count: int
    ) -> None:
        owners = feature_owners(retrievers)
        self.lower = [None if owner == FREQUENCY else 0.0 for owner in owners]
        self.map = np.eye(len(owners))
        for name in retrievers:
            first, last = owners.index(name), len(owners) - 1 - owners[::-1].index(name)
            most = np.log1p(max(1, max_count))
            self.map[last, first] = -scale[last] / (scale[first] * most)

    def weights(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the (F,) weights of parameters."""
        return self.map @ parameters

    def nearest(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the parameters of weights, those below their limits at the limits."""
        low = np.array([-np.inf if limit is None else limit for limit in self.lower])
        return np.maximum(np.linalg.solve(self.map, weights), low)

    def loss(self, of_weights: Loss) -> Loss:
        """Return a loss of weights as one of parameters."""

        def of_parameters(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            value, gradient = of_weights(self.map @ parameters)
            return value, self.map.T @ gradient

        return of_parameters


class ConditionalLogit:
    """Loss and gradient of ``fit_ensemble``.

    Args:
        inputs: (B, K, F) float64 features, 0 where neither right nor wrong.
        right: (B, K) positives.
        wrong: (B, K) the candidates they compete with.
        center: (F,) weights without penalty.
        decay: Ridge.
    """

    def __init__(
        self,
        inputs: Tensor,
        right: Tensor,
        wrong: Tensor,
        center: NDArray[np.float64],
        decay: float,
    ) -> None:
        self.inputs = inputs.reshape(-1, inputs.shape[2])
        self.right, self.wrong = right, wrong
        per_query = right.sum(dim=1, keepdim=True)
        n = max(1, int((per_query > 0).sum()))
        self.mass = right.double() / per_query.clamp_min(1) / n
        self.center, self.decay = center, decay

    def __call__(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the loss and its gradient."""
        scores = (self.inputs @ _like(weights, self.inputs)).reshape(self.right.shape)
        masked = torch.where(self.wrong, scores, -torch.inf)
        # A query without wrong candidates has no loss: a large number instead of -inf.
        against = masked.logsumexp(dim=1, keepdim=True).clamp_min(-1e9)
        gap = against - scores
        value = (self.mass * torch.nn.functional.softplus(gap)).sum()
        pull = self.mass * torch.sigmoid(gap)
        slopes = pull.sum(dim=1, keepdim=True) * torch.exp(masked - against) - pull
        step = weights - self.center
        gradient = (slopes.reshape(-1) @ self.inputs).cpu().numpy() + 2 * self.decay * step
        return float(value) + self.decay * float(step @ step), gradient


def fit_unseen(
    weights: EnsembleWeights,
    candidates: Candidates,
    positive: Tensor,
    text_scores: Mapping[str, Tensor],
    *,
    seed: int,
    max_count: int | None = None,
) -> EnsembleWeights:
    """Fit the weights of labels without training texts by hiding labels.

    Tenths of the rare labels in turn are scored as if they had been added after training, against
    the others. Labels that are unseen in the data take part only where one of them is right: if
    validation was chosen such that every label keeps a training text, they cannot be.

    Args:
        weights: Fitted on labels with training texts.
        candidates: Of queries that no scorer was trained on.
        positive: (B, K) which candidates are right.
        text_scores: See ``hide``.
        seed: Of the choice of labels.
        max_count: Training texts of a label that is hidden, at most; None for no limit.

    Returns:
        A copy; the same weights where no hidden label is right.
    """
    seen, valid = candidates.seen, candidates.valid
    unseen = valid & ~seen
    part = valid if bool((positive & unseen).any()) else seen
    plain = replace(weights, unseen=None)
    inputs, scores, hidden = [], [], []
    rare = seen if max_count is None else seen & (candidates.counts <= max_count)
    masks = hidden_labels(candidates.rows, int((positive & rare).sum()), seed)
    for mask in masks:
        gone = (mask & rare) | unseen
        out = gone & part
        shown = hide(candidates, gone, text_scores)
        scores.append(plain.scores(shown, torch.float64))
        inputs.append(text_matrix(shown, weights.retrievers)[out])
        hidden.append(out)
    right = [bool((own & positive).any()) for own in hidden]
    if not any(right):
        return weights
    joined = torch.cat(hidden)
    fitted: UnseenWeights = fit_unseen_weights(
        torch.cat(inputs),
        torch.cat(scores),
        joined,
        positive.repeat(len(masks), 1),
        part.repeat(len(masks), 1),
        prior=weights.unseen,
    )
    return replace(weights, unseen=fitted)


def _moments(
    values: Tensor, prior: EnsembleWeights | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if prior is not None:
        return prior.mean, prior.scale
    if not len(values):
        return np.zeros(values.shape[1]), np.ones(values.shape[1])
    mean = values.mean(dim=0).cpu().numpy()
    scale = values.std(dim=0, correction=0).cpu().numpy()
    return mean, np.where(scale > 1e-9, scale, 1.0)


def _like(values: NDArray[np.float64], tensor: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float64)).to(tensor.device)
