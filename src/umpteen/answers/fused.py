"""The fused answer of a run: candidates of all parts, one score, one probability each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.answers.candidates import Candidates, best_candidates
from umpteen.answers.features import counts_of, of_query
from umpteen.answers.recipe import Recipe, Way
from umpteen.answers.remembered import Additions, Remembered
from umpteen.answers.views import DEPTH, Views
from umpteen.types import TopK

if TYPE_CHECKING:
    from umpteen.predictor import Predictor


class Fused:
    """What the head ``ensemble`` is: all parts of a run and the recipe that joins them.

    Args:
        recipe: From a fit.
        views: The parts.
        label_counts: (L,) queries of each label among those the parts learned from. Held-out
            queries do not count: their labels would look more frequent than the parts know them.
    """

    def __init__(self, recipe: Recipe, views: Views, label_counts: NDArray[np.int64]) -> None:
        self.recipe = recipe
        self.views = views
        self.label_counts = label_counts

    def without_additions(self, predictor: Predictor) -> Fused:
        """The same with what training left alone, for a predictor that knows no changes either."""
        views = self.views
        remembered = views.remembered
        if remembered is not None:
            remembered = Remembered(
                remembered.memory,
                remembered.words,
                predictor.labels_now,
                predictor.vectors,
                normalize=remembered.normalize,
            )
        own = Views(predictor, remembered, views.lexical, views.voting, views.word_voting)
        return Fused(self.recipe, own, self.label_counts)

    def search(
        self,
        texts: Sequence[str],
        vectors: torch.Tensor,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
        without: Iterable[str] = (),
    ) -> TopK:
        """The k best labels of each text; scores are probabilities.

        Args:
            texts: The queries.
            vectors: (N, heads * dim) their search vectors.
            k: How many labels.
            exclude: (M, 2) pairs (query, row) that must not be returned.
            allowed: Labels that may be returned.
            without: Parts to leave out.

        Returns:
            (N, k).
        """
        way = self.recipe.way(without)
        rows = np.full((len(texts), k), -1, np.int64)
        scores = np.full((len(texts), k), -np.inf, np.float32)
        for here, found, now in self.views.blocks(
            texts,
            vectors,
            views=way.model.views,
            depth=max(DEPTH, k),
            exclude=exclude,
            allowed=allowed,
        ):
            raw = self._scores(way, found, list(texts[here]), now)
            top = best_candidates(raw, way.calibration.probabilities(raw, found), found, k)
            rows[here], scores[here] = top.rows, top.scores
        return TopK(rows, scores)

    def explain(
        self,
        texts: Sequence[str],
        vectors: torch.Tensor,
        top: TopK,
        *,
        without: Iterable[str] = (),
    ) -> list[list[dict[str, Any]]]:
        """For each answer of each text what the parts say: every view's score, every part's share.

        Args:
            texts: The queries.
            vectors: Their search vectors.
            top: What ``search`` returned for them.
            without: As in the search.

        Returns:
            One list a text, one entry an answer: ``{"scores": {view: ..}, "shares": {part: ..}}``.
            A share is what the score would lose if the part had said what it says on average.
            Both are empty for a label that another head has found and no part would.
        """
        way = self.recipe.way(without)
        told: list[list[dict[str, Any]]] = []
        for here, found, _ in self.views.blocks(
            texts,
            vectors,
            views=way.model.views,
            depth=max(DEPTH, top.rows.shape[1]),
        ):
            given = way.model.features(found, self.label_counts)
            average = (
                np.stack([of_query(np.add, column, found) for column in given.T], axis=1)
                / of_query(np.add, np.ones(len(found)), found)[:, None]
            )
            shares = way.model.shares(given, average)
            keys = {
                (query, row): place
                for place, (query, row) in enumerate(
                    zip(found.queries.tolist(), found.rows.tolist(), strict=True)
                )
            }
            for query, rows in enumerate(top.rows[here].tolist()):
                places = [keys.get((query, row), -1) for row in rows]
                told.append([_told_of(place, found, shares) for place in places])
        return told

    def _scores(
        self, way: Way, found: Candidates, texts: list[str], now: Additions | None
    ) -> NDArray[np.float64]:
        raw = way.model.scores(way.model.features(found, self.label_counts))
        raw = raw + way.tilt * self._rarity(found)
        remembered = self.views.remembered
        if remembered is None or now is None or not now.texts:
            return raw
        labels = self.views.labels(None)
        said = self.views.told(texts, labels, now)
        if not said.shape[1] or not len(found):
            return raw
        keys = np.arange(len(said))[:, None] * np.int64(labels.n) + said
        told = np.isin(found.queries * np.int64(labels.n) + found.rows, keys[said >= 0])
        # A user's own word for this very text comes before what any part thinks.
        width = of_query(np.maximum, raw, found) - of_query(np.minimum, raw, found)
        return raw + told * (width + 5.0)

    def _rarity(self, found: Candidates) -> NDArray[np.float64]:
        """(C,) ``log_inverse_propensities(label_counts)[rows]``, for these rows alone."""
        return self.recipe.log_inverse_propensities(counts_of(found, self.label_counts))


def _told_of(
    place: int, found: Candidates, shares: dict[str, NDArray[np.float64]]
) -> dict[str, Any]:
    if place < 0:
        return {"scores": {}, "shares": {}}
    return {
        "scores": {view: float(values[place]) for view, values in found.scores.items()},
        "shares": {part: float(values[place]) for part, values in shares.items()},
    }
