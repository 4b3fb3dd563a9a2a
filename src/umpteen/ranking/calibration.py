"""Turn ensemble scores into probabilities with a logistic regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.errors import RunError
from umpteen.ranking.candidates import Candidates, ascending, top_k
from umpteen.ranking.features import query_best
from umpteen.ranking.solver import minimize_convex, prior_ridge

PLACES = 20
"""Best candidates of a query that the calibration is fitted and judged on."""
DECAY = 1.0
"""Ridge of the summed loss, toward the prior calibration."""
SLOPE_RIDGE, CONSTANT_RIDGE, QUERY_RIDGE = 30.0, 3.0, 100.0
"""Further ridges of the slope, of the constant and, relative to their mean squares, of the other
inputs of the shift; each times ``prior_ridge``. Few queries say little about inputs that differ
between queries alone, and the candidates of one query err together."""
MIN_SLOPE = 1e-9
"""Smallest slope: probabilities keep the order of the scores within a query."""
MAX_LOGIT = 60.0
TAIL_PLACE = 10
"""The tail of a query are the candidates below this place."""
MIN_TAIL = -12.0
"""Smallest logarithm of the tail's share."""
QUERY_INPUTS = ("constant", "level", "entropy", "tail")
"""Inputs of the shift that do not depend on the retrievers."""


@dataclass(frozen=True)
class Calibration:
    """A logistic curve of a candidate's log share, shifted for each query.

    The log share is the log-softmax of the scores over the query's candidates. Where a text has
    several labels, they divide the softmax among them, and the shares alone say too little. The
    shift depends on how high the scores are, on the shares' entropy, on the mass beyond the first
    ten, and on the best score of each retriever. Probabilities rise with the score within a query.
    """

    retrievers: tuple[str, ...]
    slope: float
    """Of the log share; above 0."""
    shift: NDArray[np.float64]
    """Coefficients of the inputs of ``calibration_inputs``."""
    threshold: float = 0.5
    """The probability with the best micro-F1 on validation."""
    group_thresholds: tuple[float, ...] = ()
    """The same for the labels of each frequency group, head to tail."""
    converged: bool = True
    """Whether the fit converged."""

    @property
    def lowest_threshold(self) -> float:
        """The smallest of its thresholds."""
        return min((self.threshold, *self.group_thresholds))

    def probabilities(self, scores: Tensor, candidates: Candidates) -> Tensor:
        """Compute the probability that each candidate is right.

        Args:
            scores: (B, K) of the ensemble.
            candidates: The candidates.

        Returns:
            (B, K) in [0, 1]; 0 at padding places.
        """
        logits, given = calibration_inputs(scores, candidates, self.retrievers)
        shift = given @ torch.from_numpy(self.shift).to(given)
        logits = logits.mul(self.slope).add_(shift[:, None])
        # Not torch.sigmoid: equal inputs at different places can differ in the last bit.
        said = 1.0 / (1.0 + torch.exp(-logits.clamp_(-MAX_LOGIT, MAX_LOGIT)))
        return candidates.filled(said, 0.0)

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "retrievers": list(self.retrievers),
            "slope": self.slope,
            "shift": self.shift.tolist(),
            "threshold": self.threshold,
            "group_thresholds": list(self.group_thresholds),
            "converged": self.converged,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Calibration:
        """Read the values of ``as_json``.

        Raises:
            RunError: If the values are damaged.
        """
        try:
            retrievers = tuple(value["retrievers"])
            shift = np.array(value["shift"], np.float64).reshape(n_inputs(retrievers))
            groups = tuple(float(each) for each in value["group_thresholds"])
            slope, threshold = float(value["slope"]), float(value["threshold"])
            if not (slope > 0 and np.isfinite([slope, threshold, *groups, *shift]).all()):
                raise ValueError("a coefficient is not finite or the slope is not positive")
            converged = bool(value["converged"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"The calibration is damaged ({error!r}); fit the ensemble again."
            ) from error
        return cls(retrievers, slope, shift, threshold, groups, converged)


def n_inputs(retrievers: tuple[str, ...]) -> int:
    """Return the number of coefficients of the shift."""
    return len(QUERY_INPUTS) + len(retrievers)


def calibration_inputs(
    scores: Tensor, candidates: Candidates, retrievers: tuple[str, ...]
) -> tuple[Tensor, Tensor]:
    """Compute the inputs of the calibration.

    Args:
        scores: (B, K).
        candidates: The candidates.
        retrievers: Whose best scores shift a query.

    Returns:
        (B, K) log shares, and (B, Q) inputs of the shift: 1, the log-sum-exp of the scores, the
        entropy of the shares, the logarithm of the share of all candidates below the tenth, and
        the best score of each retriever. All in the type of the scores.
    """
    valid = candidates.valid
    masked = candidates.filled(scores, -torch.inf)
    level = masked.logsumexp(dim=1)
    if not candidates.complete:
        level = torch.where(valid.any(dim=1), level, 0.0)
    logs = candidates.filled(masked - level[:, None], 0.0)
    shares = candidates.filled(logs.exp(), 0.0)
    entropy = -(shares * logs).sum(dim=1)
    width = masked.shape[1]
    tenth = ascending(masked)[:, max(0, width - TAIL_PLACE)].unsqueeze(1)
    beyond = torch.where(masked < tenth, shares, 0.0).sum(dim=1)
    tail = beyond.clamp_min(np.exp(MIN_TAIL)).log()
    best = [query_best(candidates, name).to(scores.dtype) for name in retrievers]
    given = torch.stack([torch.ones_like(level), level, entropy, tail, *best], dim=1)
    return logs, given


def fit_calibration(
    scores: Tensor,
    candidates: Candidates,
    positive: Tensor,
    prior: Calibration,
    *,
    places: int = PLACES,
    decay: float = DECAY,
) -> Calibration:
    """Fit a logistic regression with a ridge toward a prior.

    Args:
        scores: (B, K) of an ensemble that was not fitted on these queries.
        candidates: The candidates.
        positive: (B, K) which are right.
        prior: Where the fit starts and what the ridge pulls to; returned without queries.
        places: Only the best candidates of each query are used, those that users see.
        decay: Ridge of the loss that is summed over candidates.

    Returns:
        The calibration with the thresholds of the prior.
    """
    logs, given = calibration_inputs(scores.double(), candidates, prior.retrievers)
    positions = top_k(scores, candidates.rows, places)
    shown = positions >= 0
    if not shown.any():
        return prior
    queries, _ = shown.nonzero(as_tuple=True)
    taken = positions[shown]
    inputs = torch.cat([logs[queries, taken][:, None], given[queries]], dim=1).cpu().numpy()
    right = positive[queries, taken].cpu().numpy().astype(np.float64)
    center = np.array([prior.slope, *prior.shift])
    further = QUERY_RIDGE * (inputs**2).mean(axis=0)
    further[:2] = SLOPE_RIDGE, CONSTANT_RIDGE
    ridge = decay + prior_ridge(int(shown.any(dim=1).sum())) * further
    # Scaling by the curvature at even odds makes huge and tiny inputs alike for the solver.
    scale = 1.0 / np.sqrt(0.25 * (inputs**2).sum(axis=0) + ridge)

    def loss(steps: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = center + scale * steps
        logits = inputs @ weights
        value = np.logaddexp(0.0, logits).sum() - right @ logits
        said = 0.5 * (1.0 + np.tanh(0.5 * logits))
        gap = scale * steps
        gradient = scale * (inputs.T @ (said - right) + ridge * gap)
        return float(value + 0.5 * (ridge * gap) @ gap), gradient

    lower = [(MIN_SLOPE - prior.slope) / scale[0]] + [None] * (len(center) - 1)
    solution = minimize_convex(loss, np.zeros(len(center)), name="calibration", lower=lower)
    weights = center + scale * solution.x
    return Calibration(
        prior.retrievers,
        max(float(weights[0]), MIN_SLOPE),
        weights[1:],
        prior.threshold,
        prior.group_thresholds,
        solution.converged,
    )
