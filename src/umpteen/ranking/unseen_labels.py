"""Weights for labels without training texts, fitted by hiding labels that have some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.features import N_FEATURES, retriever_columns
from umpteen.ranking.retriever_specs import FREQUENCY, RETRIEVER_SPECS
from umpteen.ranking.solver import minimize_convex, prior_ridge

HIDDEN_SHARE = 0.1
"""Share of the labels that is hidden at a time."""
ENOUGH_POSITIVES = 2000
"""Hidden positives to fit on; further tenths of the labels are hidden until there are as many."""
RARE_SHARE, RARE_COUNT = 0.03, 5
"""Only labels on at most this share of the training texts, or this many, are hidden: a new label is
rarely on more, and most hidden positives would be those of a few frequent labels."""
DECAY = 3e-4
"""Ridge of the mean loss."""
LOWEST = -1e3
"""Log-sum-exp of a query without seen wrong labels."""


@dataclass(frozen=True)
class UnseenWeights:
    """Weights of the text features of a label without training texts; the last is a constant."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    converged: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        names = ("mean", "scale", "weights")
        return {**{n: getattr(self, n).tolist() for n in names}, "converged": self.converged}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], size: int) -> UnseenWeights:
        """Read the values of ``as_json``; ``size`` is the number of features."""
        mean, scale, weights = read_finite(value, ("mean", "scale", "weights"), size)
        return cls(mean, scale, weights, bool(value["converged"]))


def read_finite(
    value: Mapping[str, Any], names: Sequence[str], size: int
) -> list[NDArray[np.float64]]:
    """Read arrays of a size from JSON values.

    Raises:
        ValueError: If a size differs or a number is not finite.
    """
    arrays = [np.array(value[name], np.float64).reshape(size) for name in names]
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("a weight is not finite")
    return arrays


def text_feature_owners(retrievers: tuple[str, ...]) -> list[str]:
    """Return the retriever of each text feature, ``frequency`` for the constant."""
    own = [
        name
        for name in retrievers
        if RETRIEVER_SPECS[name].reads_label_text
        for _ in range(N_FEATURES[RETRIEVER_SPECS[name].kind])
    ]
    return [*own, FREQUENCY]


def text_matrix(
    candidates: Candidates, retrievers: tuple[str, ...], dtype: torch.dtype = torch.float64
) -> Tensor:
    """Compute the features of labels from their texts alone.

    Args:
        candidates: With the scores of these retrievers.
        retrievers: Which to read; only those that read label texts have features.
        dtype: Of the computation.

    Returns:
        (B, K, U); the last feature is 1. Values at padding places are 0.
    """
    reading = [name for name in retrievers if RETRIEVER_SPECS[name].reads_label_text]
    own = [column for name in reading for column in retriever_columns(candidates, name, dtype)]
    ones = torch.ones(candidates.rows.shape, dtype=dtype, device=candidates.rows.device)
    stacked = torch.stack([*own, ones], dim=2)
    return torch.where(candidates.valid[:, :, None], stacked, 0.0)


def hide(candidates: Candidates, hidden: Tensor, text_scores: Mapping[str, Tensor]) -> Candidates:
    """Return the candidates as if some labels had been added after training.

    Args:
        candidates: The candidates.
        hidden: (B, K) labels to hide.
        text_scores: Retriever name to the (B, K) scores it would give an added label; only for
            retrievers that use more than the label's text for labels with training texts.

    Returns:
        A copy in which hidden labels have no votes, no one-vs-rest scores, no training texts, and
        the text scores.
    """
    scores = dict(candidates.scores)
    for name, values in scores.items():
        if RETRIEVER_SPECS[name].kind in ("votes", "margin"):
            scores[name] = values.masked_fill(hidden, 0.0)
        elif name in text_scores:
            scores[name] = torch.where(hidden, text_scores[name].to(values.dtype), values)
    return Candidates(candidates.rows, scores, candidates.counts.masked_fill(hidden, 0))


def max_hidden_count(n_train: int) -> int:
    """Return how many training texts a label may have to be hidden.

    Example:
        >>> max_hidden_count(150), max_hidden_count(10_000)
        (5, 300)
    """
    return max(RARE_COUNT, int(RARE_SHARE * n_train))


def hidden_labels(rows: Tensor, n_positives: int, seed: int) -> list[Tensor]:
    """Choose labels to hide: random tenths, one after the other, none twice.

    Args:
        rows: (B, K) of the candidates.
        n_positives: Among the candidates.
        seed: Of the choice.

    Returns:
        (B, K) masks, until ``ENOUGH_POSITIVES`` are hidden, at most all tenths.
    """
    parts = max(1, round(1 / HIDDEN_SHARE))
    needed = int(np.ceil(ENOUGH_POSITIVES / max(1.0, n_positives * HIDDEN_SHARE)))
    n_labels = int(rows.max()) + 1 if rows.numel() else 0
    of_label = np.random.default_rng([seed, 0x41D]).permutation(n_labels) % parts
    parts_of = torch.from_numpy(np.append(of_label, -1)).to(rows.device)[rows]
    return [parts_of == part for part in range(min(parts, needed))]


def fit_unseen_weights(
    inputs: Tensor,
    seen_scores: Tensor,
    hidden: Tensor,
    positive: Tensor,
    valid: Tensor,
    *,
    decay: float = DECAY,
    prior: UnseenWeights | None = None,
) -> UnseenWeights:
    """Fit the weights of hidden labels; the scores of the others stay as they are.

    The loss is that of ``fit_ensemble``. All weights but the constant are 0 or more: a text nearer
    to the query never lowers a label.

    Args:
        inputs: (H, U) text features of the hidden candidates, in row-major order.
        seen_scores: (B, K) scores of the candidates that are not hidden.
        hidden: (B, K) which candidates are hidden, H of them.
        positive: (B, K) which candidates are right.
        valid: (B, K) candidates that take part.
        decay: Ridge of the mean loss, toward the prior or 0.
        prior: Where the fit starts and what the ridge pulls to.

    Returns:
        The weights.
    """
    own = inputs.double()
    mean, scale = _moments(own)
    center = np.zeros(own.shape[1])
    if prior is not None:
        center = _converted(prior, mean.cpu().numpy(), scale.cpu().numpy())
        decay += prior_ridge(max(1, int((positive & hidden).any(dim=1).sum())))
    part = HiddenLogit((own - mean) / scale, seen_scores.double(), hidden, positive, valid)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = part(weights)
        gap = weights - center
        return value + decay * float(gap @ gap), gradient + 2 * decay * gap

    lower = [0.0] * (len(center) - 1) + [None]
    start = np.append(np.maximum(center[:-1], 0.0), center[-1])
    solution = minimize_convex(loss, start, name="weights of unseen labels", lower=lower)
    return UnseenWeights(mean.cpu().numpy(), scale.cpu().numpy(), solution.x, solution.converged)


class HiddenLogit:
    """Mean loss and gradient of ``fit_unseen_weights``, without ridge.

    Args:
        inputs: (H, U) standardized features of the hidden candidates, in row-major order.
        seen_scores: (B, K) scores of the others.
        hidden: (B, K) which candidates are hidden.
        positive: (B, K) which are right.
        valid: (B, K) which take part.
    """

    def __init__(
        self, inputs: Tensor, seen_scores: Tensor, hidden: Tensor, positive: Tensor, valid: Tensor
    ) -> None:
        self.inputs = inputs
        self.owners = hidden.nonzero()[:, 0]
        self.right = positive[hidden]
        per_query = (positive & valid).sum(dim=1)
        n = max(1, int((per_query > 0).sum()))
        self.mass = 1.0 / (per_query.clamp_min(1).double() * n)
        wrong = valid & ~hidden & ~positive
        masked = torch.where(wrong, seen_scores, -torch.inf)
        self.wrong_seen = masked.logsumexp(dim=1).clamp_min(LOWEST)
        self.right_seen = torch.where(positive & valid & ~hidden, seen_scores, torch.inf)

    def __call__(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the loss and its gradient."""
        softplus, owners, right = torch.nn.functional.softplus, self.owners, self.right
        scores = self.inputs @ torch.from_numpy(weights).to(self.inputs.device)
        others = torch.where(right, -torch.inf, scores)
        best = self.wrong_seen.scatter_reduce(0, owners, others, "amax")
        powers = torch.exp(others - best[owners])
        sums = torch.exp(self.wrong_seen - best).index_add(0, owners, powers)
        against = best + sums.log()
        seen_gap = against[:, None] - self.right_seen
        own_gap, own_mass = (against[owners] - scores)[right], self.mass[owners[right]]
        value = (self.mass * softplus(seen_gap).sum(dim=1)).sum()
        value = value + (own_mass * softplus(own_gap)).sum()
        pull = own_mass * torch.sigmoid(own_gap)
        push = self.mass * torch.sigmoid(seen_gap).sum(dim=1)
        push = push.index_add(0, owners[right], pull)
        slopes = (push / sums)[owners] * powers
        slopes[right] = -pull
        return float(value), (slopes @ self.inputs).cpu().numpy()


def _moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    mean, scale = inputs.mean(dim=0), inputs.std(dim=0, correction=0)
    scale = torch.where(scale > 1e-9, scale, 1.0)
    mean[-1], scale[-1] = 0.0, 1.0
    return mean, scale


def _converted(
    prior: UnseenWeights, mean: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Express the prior's function in another standardization."""
    raw = prior.weights / prior.scale
    weights = raw * scale
    weights[-1] += float((raw * (mean - prior.mean))[:-1].sum())
    return weights
