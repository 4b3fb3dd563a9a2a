"""Fit one combination of parts on held-out candidates: model, tilt, probabilities, shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.answers.calibration import (
    PLACES,
    Calibration,
    fit_calibration,
    judge_sets,
    with_thresholds,
)
from umpteen.answers.candidates import Candidates, best_candidates
from umpteen.answers.choosing import tilted
from umpteen.answers.features import counts_of, of_query
from umpteen.answers.fusion import FusionModel, fit_fusion, with_trust
from umpteen.answers.held import Held
from umpteen.answers.recipe import Way
from umpteen.metrics.propensity import inverse_propensities


@dataclass(frozen=True)
class WayFit:
    """One combination of parts on the held-out candidates."""

    found: Candidates
    positive: NDArray[np.bool_]
    folds: NDArray[np.int64]
    held: Held
    views: tuple[str, ...]
    words: NDArray[np.float32] | None
    """(C,) what words would say of labels that were never trained."""
    seed: int

    def best_way(self, tilt: float | None) -> Way:
        """The model with its best tilt, its probabilities and what it comes to."""
        scores = self._cross_fitted()
        if tilt is None:
            said = self._honest(scores)
            tilt = tilted(scores, self.found, self._rarity(), said, self.positive)
        calibration, values = self._calibrated(scores + tilt * self._rarity())
        model = self._with_trust(np.ones(self.found.n_queries, bool))
        return Way(model, tilt, calibration, values, self._shares(model))

    def _fit(self, chosen: NDArray[np.bool_]) -> FusionModel:
        kept = chosen[self.found.queries]
        return fit_fusion(
            self.found.of(chosen), self.positive[kept], self.views, self.held.label_counts
        )

    def _with_trust(self, chosen: NDArray[np.bool_]) -> FusionModel:
        """The model for labels without training queries too."""
        kept = chosen[self.found.queries]
        words = None if self.words is None else self.words[kept]
        return with_trust(
            self._fit(chosen),
            self.found.of(chosen),
            self.positive[kept],
            words,
            self.held.label_counts,
            seed=self.seed,
        )

    def _cross_fitted(self) -> NDArray[np.float64]:
        """(C,) each query's scores by a model that was fitted on the other folds."""
        scores = np.zeros(len(self.found))
        untrained = bool((counts_of(self.found, self.held.label_counts) == 0).any())
        fit = self._with_trust if untrained else self._fit
        for fold in np.unique(self.folds):
            model = fit(self.folds != fold)
            own = self.found.of(self.folds == fold)
            kept = self.folds[self.found.queries] == fold
            scores[kept] = model.scores(model.features(own, self.held.label_counts))
        return scores

    def _rarity(self) -> NDArray[np.float64]:
        about = self.held.propensity
        inverse = inverse_propensities(self.held.label_counts, self.held.n_train, about.a, about.b)
        return np.log(inverse)[self.found.rows]

    def _honest(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """(C,) each query's probabilities by a calibration that was fitted on the other folds."""
        honest = np.zeros(len(scores))
        of_fold = self.folds[self.found.queries]
        for fold in np.unique(self.folds):
            others, own = self.folds != fold, self.folds == fold
            made = self._calibration(scores[of_fold != fold], others)
            honest[of_fold == fold] = made.probabilities(
                scores[of_fold == fold], self.found.of(own)
            )
        return honest

    def _calibrated(self, scores: NDArray[np.float64]) -> tuple[Calibration, dict[str, float]]:
        """The calibration on all queries; metrics with each fold's made on the others."""
        top = best_candidates(scores, self._honest(scores), self.found, PLACES)
        whole = with_thresholds(
            self._calibration(scores, np.ones(self.found.n_queries, bool)),
            top,
            self.held.truth,
            self.held.label_counts,
        )
        sets = judge_sets(top, self.held.truth, whole, self.held.label_counts)
        values = self.held.judge(top)
        values["ECE"] = sets["expected_calibration_error"]
        values["micro-F1"] = sets["auto"]["micro_f1"]
        return whole, values

    def _calibration(self, scores: NDArray[np.float64], chosen: NDArray[np.bool_]) -> Calibration:
        """Fitted on the first places of some queries: what users will see."""
        kept = chosen[self.found.queries]
        found, right = self.found.of(chosen), self.positive[kept]
        return fit_calibration(scores, found, right, self.views)

    def _shares(self, model: FusionModel) -> dict[str, float]:
        """Mean absolute share of each part over the best candidate of each query, percent."""
        given = model.features(self.found, self.held.label_counts)
        totals = np.stack([of_query(np.add, column, self.found) for column in given.T], axis=1)
        sizes = of_query(np.add, np.ones(len(self.found)), self.found)
        shares = model.shares(given, totals / sizes[:, None])
        scores = model.scores(given)
        best = scores == of_query(np.maximum, scores, self.found)
        sums = {part: float(np.abs(values[best]).sum()) for part, values in shares.items()}
        total = sum(sums.values()) or 1.0
        return {part: 100.0 * value / total for part, value in sums.items()}
