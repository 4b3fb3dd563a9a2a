"""Train the network of a re-ranker and give values to texts that it was not trained on."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.ranker import counts_of
from umpteen.ranking.reranking.decision import Reranked
from umpteen.ranking.reranking.listwise import (
    RerankExamples,
    ScoreNetwork,
    TrainOptions,
    train_network,
)
from umpteen.ranking.reranking.pair_match import pair_positions
from umpteen.ranking.reranking.reranker import Reranker, arranged
from umpteen.ranking.reranking.shortlist import Shortlist
from umpteen.ranking.variant_fitting import ValidationCandidates, cross_fitted_scores
from umpteen.training.cross_validation import FOLDS
from umpteen.training.rerank_texts import OutOfFold, examples_of, shortlisted
from umpteen.training.retrieved import Retrieved
from umpteen.training.run_to_rerank import RerankOptions, RunToRerank
from umpteen.types import Log

TEXTS_SEEN = 200_000
"""That a network of features is trained on in all its epochs."""
ENOUGH_VALIDATION = 1000
"""Validation texts from which on the network beside a transformer is trained on them."""
ENOUGH_KEPT_BACK = 2000
"""Out-of-fold texts of a fifth from which on it is kept back, to decide on; else all are trained
on, and cross-fitted."""


def fit_on_validation(
    run: RunToRerank,
    data: ValidationCandidates,
    own: Retrieved,
    reranker: Reranker,
    options: RerankOptions,
    log: Log,
) -> list[Reranked]:
    """Train the network on validation texts; values come from networks of the other folds.

    With few validation texts and a transformer, the network stays that one's score.
    """
    variant, n = run.model.variants[0], options.candidates
    examples = examples_of(
        own, variant, run.model, reranker, run.predictor, n=n, first=0, seed=run.settings.seed
    )
    few = reranker.encoder is not None and len(own.texts) < ENOUGH_VALIDATION
    train = replace(_training_of(run, examples, options), **({"epochs": 0} if few else {}))
    log(f"Training the re-ranker ({options.kind}) on {len(own.texts):,} validation texts")
    part, features = _validation_part(run, data, own, reranker, n)
    whole = torch.arange(len(features), device=features.device)
    rated = (features, part.chosen.rows, whole)
    values = _cross_fitted(reranker.network, examples, data.folds(), rated, train)
    train_network(examples, reranker.network, train, log=log)
    return [replace(part, values=values)]


def fit_out_of_fold(
    run: RunToRerank,
    data: ValidationCandidates,
    own: Retrieved,
    reranker: Reranker,
    apart: OutOfFold,
    options: RerankOptions,
    log: Log,
) -> list[Reranked]:
    """Train the network on out-of-fold texts; some of them and validation are scored.

    With many texts, some are kept back; with few, each is scored by a network of other folds.
    Without validation texts, ``own`` are the out-of-fold texts.
    """
    examples, encoder, seed = apart.examples, reranker.encoder, run.settings.seed
    if encoder is not None:
        tokens = encoder.text_tokens(apart.texts)
        labels = reranker.match.label_inputs(run.predictor.labels)
        owners, rows = pair_positions(examples.rows)
        owners = examples.texts.cpu().numpy()[owners]
        scores = arranged(encoder.scores(tokens, labels, owners, rows), examples.rows >= 0)
        examples = examples.with_pair_scores(scores)
    folds = np.random.default_rng([seed, 0x4E5]).permutation(len(apart.texts)) % FOLDS
    kept_back = run.judge is not None and len(apart.texts) // FOLDS >= ENOUGH_KEPT_BACK
    owners = examples.texts.cpu().numpy()
    used = torch.from_numpy((folds > 0 if kept_back else folds >= 0)[owners])
    chosen = examples.select(used.to(examples.rows.device))
    train = _training_of(run, chosen, options)
    log(f"Training the re-ranker ({options.kind}) on {len(chosen):,} shortlists")
    # The first shortlist of a text is the one without hidden labels.
    first = np.unique(owners, return_index=True)[1]
    first = first[(folds == 0)[owners[first]]] if kept_back else first
    rated = examples.select(torch.from_numpy(first).to(examples.rows.device))
    if not kept_back:
        own_parts = (rated.features, rated.rows, rated.texts)
        values = _cross_fitted(reranker.network, examples, folds, own_parts, train)
    train_network(chosen, reranker.network, train, log=log)
    if kept_back:
        values = _values(reranker.network, rated.features, rated.rows)
    if run.judge is None:
        return [_reranked_own(run, own, rated, values)]
    part, features = _validation_part(run, data, own, reranker, options.candidates)
    on_validation = _values(reranker.network, features, part.chosen.rows)
    return [replace(part, values=on_validation), _reranked_apart(run, rated, values)]


def _cross_fitted(
    fresh: ScoreNetwork,
    examples: RerankExamples,
    folds: NDArray[np.int64],
    rated: tuple[Tensor, Tensor, Tensor],
    train: TrainOptions,
) -> Tensor:
    """Return (B, n) values of shortlists, by networks that were trained on the other folds.

    Args:
        fresh: The untrained network.
        examples: To train on.
        folds: Of each text.
        rated: (B, n, F) features, (B, n) rows and (B,) texts of the shortlists.
        train: How.
    """
    features, rows, texts = rated
    of_text = torch.from_numpy(folds).to(rows.device)
    values = torch.zeros(rows.shape, device=rows.device)
    for fold in np.unique(folds).tolist():
        network = copy.deepcopy(fresh)
        train_network(examples.select(of_text[examples.texts] != fold), network, train)
        own = of_text[texts] == fold
        values[own] = _values(network, features[own], rows[own])
    return values


def _training_of(
    run: RunToRerank, examples: RerankExamples, options: RerankOptions
) -> TrainOptions:
    epochs = options.epochs or min(40, max(5, round(TEXTS_SEEN / max(1, len(examples)))))
    return TrainOptions(epochs, seed=run.settings.seed)


def _validation_part(
    run: RunToRerank, data: ValidationCandidates, own: Retrieved, reranker: Reranker, n: int
) -> tuple[Reranked, Tensor]:
    """Shortlist the validation texts by cross-fitted scores; values are 0 so far.

    Returns:
        The texts, and the (B, n, F) features of their shortlists.
    """
    variant, found = run.model.variants[0], own.found
    base = cross_fitted_scores(data, variant.retrievers)
    rarity = data.propensity.log_inverse(found.counts.double())
    scores = base + variant.tail_boost * rarity
    chosen, features = shortlisted(
        own, found, base.float(), scores.float(), reranker, run.predictor, n
    )
    none = torch.zeros(chosen.rows.shape, device=chosen.rows.device)
    return Reranked(found, scores, base, chosen, none, own.positive, rarity), features


@torch.no_grad()
def _values(network: ScoreNetwork, features: Tensor, rows: Tensor) -> Tensor:
    """(B, n) what a network gives the pairs of shortlists; 0 for none."""
    return arranged(network(features[rows >= 0]), rows >= 0)


def _reranked_own(
    run: RunToRerank, own: Retrieved, rated: RerankExamples, values: Tensor
) -> Reranked:
    """Put values beside all candidates of out-of-fold texts."""
    found, variant = own.found, run.model.variants[0]
    last = torch.iinfo(torch.int64).max
    ascending = torch.where(found.valid, found.rows, last).contiguous()
    places = torch.searchsorted(ascending, rated.rows.contiguous())
    places = torch.where(rated.rows >= 0, places, -1)
    base = variant.weights.scores(found, torch.float64)
    counts = counts_of(found.rows, run.predictor.snapshot())
    rarity = run.model.propensity.log_inverse(counts.double())
    chosen = Shortlist(places, rated.rows, rated.base)
    scores = base + variant.tail_boost * rarity
    return Reranked(found, scores, base, chosen, values, own.positive, rarity)


def _reranked_apart(run: RunToRerank, own: RerankExamples, values: Tensor) -> Reranked:
    """Put values beside the shortlists of out-of-fold texts."""
    counts = counts_of(own.rows, run.predictor.snapshot())
    rarity = run.model.propensity.log_inverse(counts.double())
    base = own.base.double()
    scores = base + run.model.variants[0].tail_boost * rarity
    places = torch.arange(own.rows.shape[1], device=own.rows.device).expand_as(own.rows)
    places = torch.where(own.rows >= 0, places, -1)
    found = Candidates(own.rows, {}, counts)
    chosen = Shortlist(places, own.rows, own.base)
    return Reranked(found, scores, base, chosen, values, own.positive, rarity)
