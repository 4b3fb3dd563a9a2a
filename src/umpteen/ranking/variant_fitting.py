"""Fit a variant on validation queries, cross-fitted by folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.ranking.calibration import PLACES, Calibration, fit_calibration
from umpteen.ranking.candidates import Candidates, best_candidates, take, top_k
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.ensemble_fitting import fit_ensemble, fit_unseen
from umpteen.ranking.prior import prior_calibration, prior_weights, unseen_share
from umpteen.ranking.tail_boost import choose_tail_boost
from umpteen.ranking.thresholds import set_metrics, with_thresholds
from umpteen.ranking.unseen_labels import max_hidden_count
from umpteen.ranking.variants import PropensityModel, Variant
from umpteen.types import TopK

FOLDS = 5
Judge = Callable[[TopK], dict[str, float]]
"""Metrics of predictions for the validation queries, percent."""


@dataclass(frozen=True)
class ValidationCandidates:
    """Validation queries with their candidates, and what is right."""

    candidates: Candidates
    """Of queries that no scorer was trained on."""
    positive: Tensor
    """(B, K) which candidates are right."""
    truth: sp.csr_matrix
    """(B, L) all positives, candidates or not."""
    label_counts: NDArray[np.int64]
    """(L,) training texts of each label."""
    propensity: PropensityModel
    judge: Judge
    text_scores: Mapping[str, Tensor] = field(default_factory=dict)
    """Retriever to the (B, K) scores it would give labels that were added after training."""
    labels_per_text: float = 1.0
    """Mean number of labels of a training text, for the prior calibration."""
    seed: int = 0

    def folds(self) -> NDArray[np.int64]:
        """Return the (B,) fold of each query."""
        shuffled = np.random.default_rng([self.seed, 5]).permutation(len(self.candidates))
        return shuffled % FOLDS


def positives_of(candidates: Candidates, truth: sp.csr_matrix) -> Tensor:
    """Mark the candidates that are right.

    Args:
        candidates: Of N queries.
        truth: (N, L) CSR.

    Returns:
        (N, K) bool, on the device of the candidates.
    """
    rows = candidates.rows.cpu().numpy()
    known = (rows >= 0) & (rows < truth.shape[1])
    width = np.int64(truth.shape[1])
    owners = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
    stored = np.sort((owners * width + truth.indices)[truth.data != 0])
    keys = np.arange(len(rows), dtype=np.int64)[:, None] * width + rows
    places = np.minimum(np.searchsorted(stored, keys), max(0, len(stored) - 1))
    found = known & (stored[places] == keys) if len(stored) else np.zeros_like(known)
    return torch.from_numpy(found).to(candidates.rows.device)


def fit_variant(
    data: ValidationCandidates, retrievers: tuple[str, ...], tail_boost: float | None = None
) -> Variant:
    """Fit weights, tail boost, calibration and thresholds of some retrievers.

    With few queries the fits stay near the prior; without any they return it. Scores and
    probabilities that the tail boost, the thresholds and the metrics are computed from come from
    fits on the other folds.
    """
    weights = _fit_weights(data, retrievers, None)
    if not len(data.candidates):
        calibration = prior_calibration(retrievers, data.labels_per_text)
        return Variant(weights, tail_boost or 0.0, calibration, {}, {})
    scores = cross_fitted_scores(data, retrievers)
    rarity = data.propensity.log_inverse(data.candidates.counts.double())
    if tail_boost is None:
        chances = _cross_fitted_probabilities(data, retrievers, scores)
        rows = data.candidates.rows
        tail_boost = choose_tail_boost(scores, rows, rarity, chances, data.positive)
    return calibrated_variant(data, weights, tail_boost, scores + tail_boost * rarity)


def calibrated_variant(
    data: ValidationCandidates, weights: EnsembleWeights, tail_boost: float, scores: Tensor
) -> Variant:
    """Fit calibration and thresholds to cross-fitted scores, and measure them.

    Args:
        data: The validation queries.
        weights: Of the variant, fitted on all of them.
        tail_boost: Of the variant.
        scores: (B, K) of its candidates from fits on the other folds, tail boost included.
    """
    retrievers = weights.retrievers
    chances = _cross_fitted_probabilities(data, retrievers, scores)
    top = _top(scores, chances, data.candidates)
    calibration = with_thresholds(
        _fit_calibration(data, retrievers, scores, None), top, data.truth, data.label_counts
    )
    sets = set_metrics(top, data.truth, calibration, data.label_counts)
    values = data.judge(top)
    values["ECE"] = sets["expected_calibration_error"]
    values["micro-F1"] = sets["auto"]["micro_f1"]
    split = mean_contributions(weights, data.candidates)
    return Variant(weights, tail_boost, calibration, values, split)


def mean_contributions(weights: EnsembleWeights, candidates: Candidates) -> dict[str, float]:
    """Average the absolute contributions of each scorer to the best candidate of each query."""
    best = top_k(weights.scores(candidates), candidates.rows, 1)
    sums = {
        name: float(take(values, best, 0.0).abs().double().sum())
        for name, values in weights.contributions(candidates).items()
    }
    total = sum(sums.values()) or 1.0
    return {name: 100.0 * value / total for name, value in sums.items()}


def _fit_weights(
    data: ValidationCandidates,
    retrievers: tuple[str, ...],
    chosen: Tensor | None,
    *,
    unseen: bool = True,
) -> EnsembleWeights:
    """Fit on some queries, or on all."""
    candidates, positive, texts = data.candidates, data.positive, data.text_scores
    if chosen is not None:
        candidates, positive = candidates.select(chosen), positive[chosen]
        texts = {name: values[chosen] for name, values in texts.items()}
    prior = prior_weights(retrievers, unseen_share(data.label_counts))
    most = int(data.label_counts.max(initial=0))
    weights = fit_ensemble(candidates, positive, retrievers, prior=prior, max_count=most)
    if not unseen:
        return weights
    rare = max_hidden_count(data.propensity.n_train)
    return fit_unseen(weights, candidates, positive, texts, seed=data.seed, max_count=rare)


def cross_fitted_scores(data: ValidationCandidates, retrievers: tuple[str, ...]) -> Tensor:
    """Score each query with weights that were fitted on the other folds."""
    candidates = data.candidates
    unseen = bool((candidates.valid & ~candidates.seen).any())
    scores = torch.zeros(candidates.rows.shape, dtype=torch.float64, device=candidates.rows.device)
    for own in _fold_masks(data):
        weights = _fit_weights(data, retrievers, ~own, unseen=unseen)
        scores[own] = weights.scores(candidates.select(own), torch.float64)
    return scores


def _cross_fitted_probabilities(
    data: ValidationCandidates, retrievers: tuple[str, ...], scores: Tensor
) -> Tensor:
    """Calibrate each query with a calibration that was fitted on the other folds."""
    chances = torch.zeros_like(scores)
    for own in _fold_masks(data):
        calibration = _fit_calibration(data, retrievers, scores, ~own)
        chances[own] = calibration.probabilities(scores[own], data.candidates.select(own))
    return chances


def _fit_calibration(
    data: ValidationCandidates, retrievers: tuple[str, ...], scores: Tensor, chosen: Tensor | None
) -> Calibration:
    candidates, positive = data.candidates, data.positive
    if chosen is not None:
        candidates, positive, scores = candidates.select(chosen), positive[chosen], scores[chosen]
    prior = prior_calibration(retrievers, data.labels_per_text)
    return fit_calibration(scores, candidates, positive, prior)


def _fold_masks(data: ValidationCandidates) -> list[Tensor]:
    folds = torch.from_numpy(data.folds()).to(data.candidates.rows.device)
    return [folds == fold for fold in range(min(FOLDS, len(data.candidates)))]


def _top(scores: Tensor, probabilities: Tensor, candidates: Candidates) -> TopK:
    rows, best = best_candidates(scores, probabilities, candidates.rows, PLACES)
    return TopK(rows.cpu().numpy(), best.float().cpu().numpy())
