"""Labelled texts with the candidates that a model which was not trained on them retrieves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.predictor import Predictor
from umpteen.ranking.candidates import Candidates, concat, pad
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.queries import Queries
from umpteen.ranking.ranker import EnsembleRanker
from umpteen.ranking.storage import StoredEnsemble, with_knn_configs
from umpteen.ranking.variant_fitting import positives_of
from umpteen.training.ensemble_validation import (
    TEXTS_AT_ONCE,
    Judge,
    join_splits,
    text_scores_of,
)
from umpteen.training.lost_labels import known_part


@dataclass(frozen=True)
class Retrieved:
    """Candidates of labelled texts from a model that was not trained on them."""

    texts: list[str]
    found: Candidates
    text_scores: dict[str, torch.Tensor]
    positive: torch.Tensor
    """(B, K) which candidates are right."""
    judge: Judge


def retrieve(
    predictor: Predictor, stored: StoredEnsemble, model: EnsembleModel, judge: Judge
) -> Retrieved:
    """Collect candidates as a prediction does."""
    names = model.variants[0].retrievers
    retrievers = with_knn_configs(stored.retrievers, model)
    ranker, snapshot = EnsembleRanker(model, retrievers), predictor.snapshot()
    texts, filters = list(judge.split.texts(predictor.text_config.text)), judge.split.filters
    queries = Queries(texts, predictor.vectors(texts))
    blocks, shown = [], []
    for start in range(0, len(queries), TEXTS_AT_ONCE):
        stop = min(len(queries), start + TEXTS_AT_ONCE)
        kept = filters[(filters[:, 0] >= start) & (filters[:, 0] < stop)] - np.array([start, 0])
        some = queries.block(start, stop)
        blocks.append(ranker.candidates(some, snapshot, names, exclude=kept))
        shown.append(text_scores_of(retrievers, some, snapshot, blocks[-1]))
    found = concat(blocks)
    width = found.rows.shape[1]
    joined = {
        name: torch.cat(
            [torch.nn.functional.pad(own[name], (0, width - own[name].shape[1])) for own in shown]
        )
        for name in shown[0]
    }
    return Retrieved(texts, found, joined, positives_of(found, judge.truth), judge)


def without_lost(own: Retrieved, lost: NDArray[np.bool_]) -> Retrieved:
    """Return the texts of a fold without lost labels, where some have others."""
    part = known_part(own.judge.split, own.found, own.text_scores, lost)
    if not len(part.rows):
        return own
    judge = replace(own.judge, split=part.split)
    positive = positives_of(part.candidates, judge.truth)
    texts = [own.texts[row] for row in part.rows.tolist()]
    return Retrieved(texts, part.candidates, part.text_scores, positive, judge)


def join_retrieved(parts: list[Retrieved], judge: Judge) -> Retrieved:
    """Join the texts of several folds.

    Args:
        parts: Each from its own model.
        judge: Has the counts of the run; the texts take the place of its own.
    """
    found = concat([part.found for part in parts])
    width = found.rows.shape[1]
    shared = [name for name in parts[0].text_scores if all(name in p.text_scores for p in parts)]
    texts = {
        name: torch.cat([pad(part.text_scores[name], width, 0.0) for part in parts])
        for name in shared
    }
    split = join_splits([part.judge.split for part in parts])
    judge = replace(judge, split=split, cross_validated=True)
    return Retrieved(
        [text for part in parts for text in part.texts],
        found,
        texts,
        positives_of(found, judge.truth),
        judge,
    )
