"""Fit the re-ranking stage of a run, and use it where validation shows a gain."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError
from umpteen.ranking.candidates import take, top_k
from umpteen.ranking.reranking.cost import measure_cost
from umpteen.ranking.reranking.decision import Decision, Reranked, decide
from umpteen.ranking.reranking.pair_scorer import PairScorer
from umpteen.ranking.reranking.reranker import Reranker, remove_others
from umpteen.ranking.reranking.spec import PAIR_SCORERS, RERANKER, Reranking
from umpteen.ranking.reranking.text_match import TextMatch
from umpteen.ranking.storage import StoredEnsemble
from umpteen.ranking.variant_fitting import calibrated_variant
from umpteen.ranking.variants import VARIANT_METRICS, Variant
from umpteen.registry import resolve
from umpteen.run_folder import RunFolder
from umpteen.training.cross_validation import FOLDS
from umpteen.training.prepare import default_cache
from umpteen.training.rerank_fitting import ENOUGH_VALIDATION, fit_on_validation, fit_out_of_fold
from umpteen.training.rerank_pairs import pair_examples, train_pairs
from umpteen.training.rerank_texts import OutOfFold, out_of_fold, untrained
from umpteen.training.run_to_rerank import (
    RerankOptions,
    RunToRerank,
    candidates_of,
    judged_texts,
    load_run,
)
from umpteen.types import Log


@dataclass(frozen=True)
class RerankOutcome:
    """What was found on validation, or on texts of folds where validation has too few."""

    before: Variant
    after: Variant
    """With re-ranking, whether it is used or not."""
    decision: Decision
    used: bool
    ensemble: StoredEnsemble
    """With re-ranking, for ``Predictor.use_ensemble``; written to the run where it is used."""


def rerank_run(
    folder: RunFolder,
    data: Dataset,
    settings: RunConfig,
    options: RerankOptions,
    *,
    device: str = "auto",
    log: Log,
    cache: Path | None = None,
) -> RerankOutcome:
    """Fit the re-ranker of a run and write it into its folder where it is used.

    Args:
        folder: A trained run with an ensemble.
        data: The data it was trained on.
        settings: The run's.
        options: What to fit.
        device: Where to train and rank.
        log: Called with progress lines.
        cache: Where token stores are kept; by default the user's cache folder.

    Returns:
        Metrics with and without re-ranking, and the decision.

    Raises:
        ConfigError: If the run has no ensemble, or too few texts.
    """
    run = load_run(folder, data, settings, device)
    text_match = TextMatch.of(run.predictor.labels.encoder_texts(run.predictor.text_config.text))
    apart = texts_apart(run, text_match, options, device=device, log=log, cache=cache)
    return fit_and_decide(run, text_match, apart, options, log=log)


def texts_apart(
    run: RunToRerank,
    text_match: TextMatch,
    options: RerankOptions,
    *,
    device: str,
    log: Log,
    cache: Path | None = None,
) -> OutOfFold | None:
    """Train the models of the folds; None where the network is trained on validation texts.

    Raises:
        ConfigError: If no training text is left for a transformer.
    """
    folds = options.folds
    if folds is None:
        enough = run.judge is not None and len(run.judge.split) >= ENOUGH_VALIDATION
        folds = 0 if options.kind in PAIR_SCORERS and enough else 1
    if folds >= FOLDS and options.kind in PAIR_SCORERS:
        raise ConfigError(
            f"--folds {folds} leaves no text to train the {options.kind} on; use 0 to {FOLDS - 1}"
        )
    if not folds:
        if run.judge is None:
            least = run.settings.ensemble.min_queries
            raise ConfigError(f"--folds 0 needs {least} validation texts; use 1 to {FOLDS}")
        return None
    return out_of_fold(
        run.dataset, run.settings, run.model, text_match,
        folds=folds, n=options.candidates, cache=cache or default_cache(),
        device=device, log=log, retrievers=run.stored.retrievers,
        judge=run.judge_of_folds if run.judge is None else None,
    )  # fmt: skip


def fit_and_decide(
    run: RunToRerank,
    text_match: TextMatch,
    apart: OutOfFold | None,
    options: RerankOptions,
    *,
    log: Log,
) -> RerankOutcome:
    """Train the stage, decide on texts that it was not trained on, and save it."""
    started = time.monotonic()
    torch.manual_seed(run.settings.seed)
    left_out = np.zeros(0, np.int64) if apart is None else apart.rows
    encoder = None
    if options.kind in PAIR_SCORERS:
        encoder = trained_encoder(run, left_out, options, log)
    variant = run.model.variants[0]
    reranker = untrained(variant, run.predictor, text_match, encoder)
    own = judged_texts(run, None if apart is None else apart.own)
    data = candidates_of(run, own)
    if apart is None:
        fitted_on = f"{len(own.texts):,} validation texts, cross-fitted"
        parts = fit_on_validation(run, data, own, reranker, options, log)
    else:
        fitted_on = f"{len(apart.texts):,} out-of-fold texts"
        parts = fit_out_of_fold(run, data, own, reranker, apart, options, log)
    took, part = time.monotonic() - started, parts[0]
    decision = decide(parts, run.settings.seed)
    before = calibrated_variant(data, variant.weights, variant.tail_boost, part.scores)
    added = part.added(decision.weight, decision.min_share)
    after = calibrated_variant(data, variant.weights, variant.tail_boost, part.scores + added)
    labels, n = run.predictor.labels, options.candidates
    cost = measure_cost(reranker, labels, own.texts, own.found, variant, n)
    spec = Reranking(
        options.kind, "-", "-", options.candidates, decision.weight, decision.min_share,
        cost,
        f"{fitted_on}, in {took:.0f} s",
        {name: after.validation[name] - before.validation[name] for name in VARIANT_METRICS},
        decision.p_value, part.reranked(decision.min_share),
    )  # fmt: skip
    shares = _contributions(variant, part, added)
    after = replace(after, contributions=shares, reranking=spec)
    used = options.keep == "always" or (options.keep == "auto" and decision.kept)
    if used:
        after = _save(run, reranker, after)
    model = replace(run.model, variants=(after, *run.model.variants))
    stored = replace(run.stored, model=model, reranker=reranker)
    return RerankOutcome(before, after, decision, used, stored)


def trained_encoder(
    run: RunToRerank, left_out: NDArray[np.int64], options: RerankOptions, log: Log
) -> PairScorer:
    """Train a transformer to score pairs on all training texts but some.

    Raises:
        ConfigError: If there is no encoder to start from.
    """
    if options.encoder is None:
        raise ConfigError(f"{options.kind} needs --encoder FOLDER, a Hugging Face encoder")
    predictor, train = run.predictor, run.dataset["train"]
    limit = predictor.text_config.max_tokens
    scorer = resolve(PAIR_SCORERS, options.kind, kind="re-ranker")
    encoder: PairScorer = scorer.pretrained(options.encoder, text_tokens=min(128, limit + 2))
    encoder = encoder.to(predictor.encoder.device)
    labelled = np.flatnonzero(np.diff(train.filtered_targets().indptr))
    rows = np.setdiff1d(labelled, left_out)
    log(f"Training the re-ranker ({options.kind}) on {len(rows):,} texts")
    examples = pair_examples(predictor, train, rows, encoder, options.candidates)
    train_pairs(encoder, examples, replace(options.pairs, seed=run.settings.seed), log=log)
    return encoder


def _contributions(variant: Variant, part: Reranked, added: torch.Tensor) -> dict[str, float]:
    """Average the absolute contributions to the best candidate of each text, in percent."""
    best = top_k(part.scores + added, part.found.rows, 1)
    sizes = part.found.valid.sum(dim=1, keepdim=True).clamp_min(1)
    split = variant.weights.contributions(part.found)
    split[RERANKER] = added - added.sum(dim=1, keepdim=True) / sizes
    sums = {name: float(take(v, best, 0.0).abs().double().sum()) for name, v in split.items()}
    total = sum(sums.values()) or 1.0
    return {name: 100.0 * value / total for name, value in sums.items()}


def _save(run: RunToRerank, reranker: Reranker, variant: Variant) -> Variant:
    """Write the re-ranker, then the ensemble that names it; a kill leaves the old ensemble."""
    place = run.folder.ensemble
    assert variant.reranking is not None
    variant = replace(variant, reranking=reranker.save(place, variant.reranking))
    assert variant.reranking is not None
    model = replace(run.model, variants=(variant, *run.model.variants))
    model.save(place / "ensemble.json")
    remove_others(place, variant.reranking.folder)
    return variant
