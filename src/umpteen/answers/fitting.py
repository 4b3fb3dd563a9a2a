"""Fit the fused answer on held-out queries: votes, models, tilt, probabilities. Writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.calibration import (
    PLACES,
    Calibration,
    fit_calibration,
    judge_sets,
    with_thresholds,
)
from umpteen.answers.candidates import PARTS, VIEWS, Candidates, best_candidates, look_up
from umpteen.answers.choosing import METRICS, RULE, chosen_way, tilted
from umpteen.answers.features import counts_of, of_query
from umpteen.answers.fusion import FusionModel, fit_fusion, with_trust
from umpteen.answers.memory import votes
from umpteen.answers.recipe import Recipe, Voting, Way
from umpteen.answers.untrained import words_of_texts
from umpteen.answers.views import Views
from umpteen.data.dataset import Propensity, Split
from umpteen.metrics.propensity import inverse_propensities
from umpteen.scoring import score
from umpteen.types import TopK

if TYPE_CHECKING:
    from umpteen.predictor import Predictor

FOLDS = 5
VOTINGS = tuple(Voting(n, t) for n in (20, 50, 100) for t in (0.03, 0.05, 0.1, 0.2))
Say = Callable[[str], None]


@dataclass(frozen=True)
class Held:
    """Queries that no part was trained on, with all that is needed to judge answers to them."""

    split: Split
    texts: Sequence[str]
    vectors: torch.Tensor
    truth: sp.csr_matrix
    label_counts: NDArray[np.int64]
    n_train: int
    propensity: Propensity

    def judge(self, top: TopK, metrics: Sequence[str] = METRICS) -> dict[str, float]:
        """Metrics in percent."""
        report = score(
            top,
            self.split,
            label_counts=self.label_counts,
            n_train=self.n_train,
            propensity=self.propensity,
            metrics=metrics,
        )
        return dict(report.values)


def held_out(
    predictor: Predictor,
    split: Split,
    *,
    label_counts: NDArray[np.int64],
    n_train: int,
    propensity: Propensity,
) -> Held:
    """Encode held-out queries.

    Args:
        predictor: The model.
        split: The queries.
        label_counts: (L,) of the queries that the parts learned from, these not among them.
        n_train: How many those were.
        propensity: Their constants.

    Returns:
        What ``fit_recipe`` reads.
    """
    texts = split.texts(predictor.reading.text)
    vectors = predictor.vectors(texts)
    truth = split.filtered_targets()
    return Held(split, texts, vectors, truth, label_counts, n_train, propensity)


def fit_recipe(
    views: Views,
    held: Held,
    *,
    model: str,
    seconds: float,
    seed: int,
    say: Say,
    tilt: float | None = None,
) -> Recipe:
    """Fit everything that is chosen on held-out queries.

    Args:
        views: The parts; their memory must not hold these queries.
        held: The queries.
        model: The model folder's name.
        seconds: No further way is tried after this long; the first always is.
        seed: Of the folds.
        say: Told what was chosen.
        tilt: How much rare labels are favoured, where it is not to be chosen.

    Returns:
        The recipe, the chosen way first.
    """
    started = time.monotonic()
    voting, word_voting = choose_votings(views, held)
    views = replace(views, voting=voting, word_voting=word_voting)
    found = _join(
        [
            part
            for _, part, _ in views.blocks(
                held.texts, held.vectors, views=views.names, exclude=held.split.filters
            )
        ]
    )
    positive = look_up(held.truth, found.queries, found.rows) > 0
    folds = np.random.default_rng([seed, 5]).permutation(found.n_queries) % FOLDS
    head = views.predictor.vector_heads[-1]
    dense = views.predictor.search(held.vectors, 5, head=head, exclude=held.split.filters)
    reference = held.judge(dense)
    singles = best_alone(found, held, reference)
    alone = _words_of_texts(views, held, found)
    ways: list[Way] = []
    for parts in _combinations(views.names):
        if ways and time.monotonic() - started > seconds:
            say(f"fusion: out of time after {len(ways)} of the combinations of parts")
            break
        own = _of_parts(views.names, parts)
        fit = _Fit(found, positive, folds, held, singles, own, alone, seed)
        ways.append(fit.best_way(tilt))
        say(f"fusion of {', '.join(parts)}: {_in_words(ways[-1].validation)}")
    best = chosen_way([way.validation for way in ways], reference, found.n_queries)
    ordered = (ways[best], *ways[:best], *ways[best + 1 :])
    return Recipe(
        ordered,
        views.voting,
        views.word_voting,
        (held.propensity.a, held.propensity.b),
        held.n_train,
        model,
        f"{found.n_queries} held-out queries, {FOLDS} folds",
        RULE,
    )


def _words_of_texts(views: Views, held: Held, found: Candidates) -> NDArray[np.float32] | None:
    if views.lexical is None:
        return None
    words, titles = views.lexical.words, views.predictor.labels.titles
    rows, places = np.unique(found.rows, return_inverse=True)
    labels = words.vectors([titles[row] for row in rows.tolist()])
    pairs = Candidates(found.queries, places, {}, found.n_queries)
    return words_of_texts(words.vectors(held.texts), labels, pairs)


def best_alone(found: Candidates, held: Held, reference: dict[str, float]) -> dict[str, float]:
    """The best value of each metric that a single view, or the heads together, have."""
    values = [reference]
    for said in found.scores.values():
        scores = said.astype(np.float64)
        values.append(held.judge(best_candidates(scores, scores, found, 5)))
    return {name: max(one[name] for one in values) for name in METRICS}


def _combinations(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All parts; all but one; the heads alone."""
    whole = tuple(part for part in PARTS if part in {VIEWS[name] for name in names})
    heads = tuple(part for part in whole if part in ("de", "clf"))
    fewer = [tuple(p for p in whole if p != left_out) for left_out in whole]
    return [parts for parts in dict.fromkeys([whole, *fewer, heads]) if parts]


def _of_parts(names: tuple[str, ...], parts: tuple[str, ...]) -> tuple[str, ...]:
    kept = tuple(name for name in names if VIEWS[name] in parts)
    # Queries with the same words vote from the memory: without votes, there is no memory to ask.
    return kept if "votes" in parts else tuple(name for name in kept if name != "word_votes")


def choose_votings(views: Views, held: Held) -> tuple[Voting, Voting]:
    """How near queries vote, by vectors and by words: whose votes alone have the best nDCG@5."""
    remembered = views.remembered
    if remembered is None:
        return views.voting, views.word_voting
    now = remembered.refresh()
    most = max(voting.neighbours for voting in VOTINGS)

    def best(near: TopK) -> Voting:
        values = []
        for voting in VOTINGS:
            said = votes(near, remembered.memory.targets, **vars(voting))
            values.append(held.judge(top_of_stored(said, 10), ["nDCG@5"])["nDCG@5"])
        return VOTINGS[int(np.argmax(values))]

    by_vectors = best(remembered.nearest(held.vectors, most, now))
    if views.lexical is None:
        return by_vectors, views.word_voting
    words = views.lexical.words.vectors(held.texts)
    return by_vectors, best(remembered.nearest_by_words(words, most, now))


def top_of_stored(matrix: sp.csr_matrix, k: int) -> TopK:
    """The k largest stored values of each row; columns must be sorted."""
    n = matrix.shape[0]
    of_row = np.repeat(np.arange(n), np.diff(matrix.indptr))
    stored = Candidates(of_row, matrix.indices.astype(np.int64), {}, n)
    values = matrix.data.astype(np.float64)
    return best_candidates(values, values, stored, k)


def _join(blocks: list[Candidates]) -> Candidates:
    starts = np.cumsum([0, *(block.n_queries for block in blocks)])
    return Candidates(
        np.concatenate([b.queries + s for b, s in zip(blocks, starts, strict=False)]),
        np.concatenate([b.rows for b in blocks]),
        {view: np.concatenate([b.scores[view] for b in blocks]) for view in blocks[0].scores},
        int(starts[-1]),
    )


@dataclass(frozen=True)
class _Fit:
    """One combination of parts on the held-out candidates."""

    found: Candidates
    positive: NDArray[np.bool_]
    folds: NDArray[np.int64]
    held: Held
    singles: dict[str, float]
    views: tuple[str, ...]
    words: NDArray[np.float32] | None
    """(C,) what words would say of labels that were never trained."""
    seed: int

    def best_way(self, tilt: float | None) -> Way:
        """The model with its best tilt, its probabilities and what it comes to."""
        scores = self._cross_fitted()
        if tilt is None:
            tilt = tilted(scores, self.found, self._rarity(), self.held.judge, self.singles)
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

    def _calibrated(self, scores: NDArray[np.float64]) -> tuple[Calibration, dict[str, float]]:
        """The calibration on all queries; metrics with each fold's made on the others."""
        honest = np.zeros(len(scores))
        of_fold = self.folds[self.found.queries]
        for fold in np.unique(self.folds):
            others, own = self.folds != fold, self.folds == fold
            made = self._calibration(scores[of_fold != fold], others)
            honest[of_fold == fold] = made.probabilities(
                scores[of_fold == fold], self.found.of(own)
            )
        top = best_candidates(scores, honest, self.found, PLACES)
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


def _in_words(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {values[name]:.2f}" for name in METRICS)
