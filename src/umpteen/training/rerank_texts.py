"""Shortlists of labelled texts for the re-ranker: out-of-fold ones to train on, and validation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import RunError
from umpteen.predictor import Predictor
from umpteen.ranking.candidates import Candidates
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.reranking.listwise import RerankExamples, join_examples
from umpteen.ranking.reranking.pair_match import PairMatch
from umpteen.ranking.reranking.pair_scorer import PairScorer
from umpteen.ranking.reranking.reranker import Reranker, score_network
from umpteen.ranking.reranking.shortlist import Shortlist, shortlist
from umpteen.ranking.reranking.text_match import TextMatch
from umpteen.ranking.reranking.token_match import TokenMatch
from umpteen.ranking.retrievers.base import Retriever
from umpteen.ranking.storage import StoredEnsemble
from umpteen.ranking.unseen_labels import hidden_labels, hide
from umpteen.ranking.variants import Variant
from umpteen.training.cross_validation import FOLDS, fold_settings, run_fold
from umpteen.training.ensemble_validation import TEXTS_AT_ONCE, Judge
from umpteen.training.fit_retrievers import with_retrievers
from umpteen.training.fit_time import FitTime
from umpteen.training.lost_labels import lost_labels
from umpteen.training.retrieved import Retrieved, join_retrieved, retrieve, without_lost
from umpteen.types import Log


@dataclass(frozen=True)
class OutOfFold:
    """Shortlists of training texts from models that were not trained on them."""

    examples: RerankExamples
    texts: list[str]
    """That the examples number."""
    rows: NDArray[np.int64]
    """Of the folds in the train split."""
    own: Retrieved | None = None
    """These texts with all their candidates, where the gain is measured on them alone."""


def shortlisted(
    own: Retrieved,
    found: Candidates,
    base: torch.Tensor,
    scores: torch.Tensor,
    reranker: Reranker,
    predictor: Predictor,
    n: int,
) -> tuple[Shortlist, torch.Tensor]:
    """Choose the candidates to re-rank and compute their features.

    Args:
        own: The texts.
        found: Their candidates, as they are or with hidden labels.
        base: (B, K) scores of the ensemble without tail boost.
        scores: (B, K) the same with it.
        reranker: Computes features.
        predictor: Has the labels.
        n: Candidates of a text.

    Returns:
        The shortlist and (B, n, F) features.
    """
    labels = predictor.labels
    chosen = shortlist(found, scores, base, n)
    parts = []
    for start in range(0, len(found), TEXTS_AT_ONCE):
        some = torch.arange(start, min(len(found), start + TEXTS_AT_ONCE))
        block = Shortlist(chosen.places[some], chosen.rows[some], chosen.base[some])
        texts = own.texts[start : start + TEXTS_AT_ONCE]
        parts.append(reranker.features(texts, labels, found.select(some), block))
    return chosen, torch.cat(parts)


def examples_of(
    own: Retrieved,
    variant: Variant,
    model: EnsembleModel,
    reranker: Reranker,
    predictor: Predictor,
    *,
    n: int,
    first: int,
    seed: int,
) -> RerankExamples:
    """Make training examples, some with labels as if they had been added after training.

    Returns:
        Every text, then those of them that have a hidden label among the right ones.
    """
    masks = hidden_labels(own.found.rows, int(own.positive.sum()), seed)[:1]
    whole = torch.arange(len(own.found))
    parts = []
    for mask in (None, *masks):
        found = own.found if mask is None else hide(own.found, mask, own.text_scores)
        texts = whole
        if mask is not None:
            texts = (own.positive & mask).any(dim=1).cpu().nonzero()[:, 0]
        some = replace(own, texts=[own.texts[i] for i in texts.tolist()])
        found, positive = found.select(texts), own.positive[texts]
        if not len(texts):
            continue
        base = variant.weights.scores(found)
        scores = variant.scores(found, model.propensity)
        chosen, features = shortlisted(some, found, base, scores, reranker, predictor, n)
        right = positive.gather(1, chosen.places.clamp_min(0)) & chosen.valid
        numbers = texts.to(features.device) + first
        parts.append(RerankExamples(features, chosen.base, chosen.rows, right, numbers))
    return join_examples(parts)


def out_of_fold(
    dataset: Dataset,
    settings: RunConfig,
    model: EnsembleModel,
    text_match: TextMatch,
    *,
    folds: int,
    n: int,
    cache: Path,
    device: str,
    log: Log,
    retrievers: Mapping[str, Retriever],
    judge: Judge | None = None,
) -> OutOfFold:
    """Train models on parts of the training texts and shortlist the others with them.

    Labels that a fold takes the last text of are left out of its shortlists.

    Args:
        dataset: The run's training and validation texts.
        settings: The run's.
        model: Its ensemble.
        text_match: Of its labels.
        folds: How many models are trained.
        n: Candidates of a text.
        cache: Where token stores are kept.
        device: Where to train.
        log: Called with progress lines.
        retrievers: Of the run, by name. Each fold fits the same and takes over ``names``.
        judge: Given where there are no validation texts; all candidates are then kept.

    Returns:
        Examples, and the texts that they number.
    """
    labelled = np.flatnonzero(np.diff(dataset["train"].filtered_targets().indptr))
    order = np.random.default_rng([settings.seed, 0x4E4]).permutation(labelled)
    parts, texts, rows = list[RerankExamples](), list[str](), list[NDArray[np.int64]]()
    kept = list[Retrieved]()
    whole = replace(dataset, splits={"train": dataset["train"]})
    for fold in range(folds):
        own_rows = np.sort(order[fold::FOLDS])
        where = f"fold {fold + 1} of {folds}"
        log(f"Training a model without {len(own_rows):,} texts, to re-rank those ({where})")
        own, made = run_fold(
            whole, own_rows, fold_settings(settings), cache=cache, device=device,
            fit_fold=lambda place, own, part: with_retrievers(
                place, own, part, settings, _limit(settings), _silent, retrievers.get("names"),
                wanted=retrievers,
            ),
            use=partial(
                _examples_of_fold, model=model, text_match=text_match, counts=whole.label_counts,
                n=n, first=len(texts), seed=settings.seed,
            ),
        )  # fmt: skip
        parts.append(made)
        rows.append(own_rows)
        texts.extend(own.texts)
        kept.extend([own] if judge is not None else [])
    together = None if judge is None else join_retrieved(kept, judge)
    return OutOfFold(join_examples(parts), texts, np.concatenate(rows), together)


def _examples_of_fold(
    predictor: Predictor,
    stored: StoredEnsemble,
    of_fold: Judge,
    *,
    model: EnsembleModel,
    text_match: TextMatch,
    counts: NDArray[np.int64],
    n: int,
    first: int,
    seed: int,
) -> tuple[Retrieved, RerankExamples]:
    """Return the texts of a fold with what its model retrieves, and training examples of them."""
    lacking = set(model.variants[0].retrievers) - set(stored.retrievers)
    if lacking:
        raise RunError(
            f"the model of a fold has no {', '.join(sorted(lacking))}, which the run has; "
            "give the ensemble more time with --set ensemble.seconds=600"
        )
    lost = lost_labels(counts, of_fold.label_counts)
    own = without_lost(retrieve(predictor, stored, model, of_fold), lost)
    variant = model.variants[0]
    reranker = untrained(variant, predictor, text_match)
    return own, examples_of(own, variant, model, reranker, predictor, n=n, first=first, seed=seed)


def untrained(
    variant: Variant,
    predictor: Predictor,
    text_match: TextMatch,
    encoder: PairScorer | None = None,
) -> Reranker:
    """Return a re-ranker with an untrained network, to compute features with."""
    which = predictor.text_config.text
    tokens = TokenMatch.of(predictor.encoder, predictor.labels.encoder_texts(which))
    network = score_network(variant.retrievers, encoder is not None).to(predictor.encoder.device)
    return Reranker(
        variant.retrievers, network, PairMatch(text_match, tokens, which, encoder), encoder
    )


def _limit(settings: RunConfig) -> FitTime:
    return FitTime(time.monotonic() + settings.ensemble.seconds, strict=False)


def _silent(line: str) -> None:
    """Log nothing: the fits of single folds say nothing of the run."""
