"""Fit the re-ranking stage of a run, and use it where validation shows a gain."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError
from umpteen.predictor import Predictor
from umpteen.ranking.candidates import Candidates, take, top_k
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.ranker import counts_of
from umpteen.ranking.reranking.cost import measure_cost
from umpteen.ranking.reranking.decision import Decision, Reranked, decide
from umpteen.ranking.reranking.listwise import (
    PairTexts,
    RerankExamples,
    TrainOptions,
    network_scores,
    train_network,
)
from umpteen.ranking.reranking.network import ScoreNetwork
from umpteen.ranking.reranking.pair_encoder import PairEncoder
from umpteen.ranking.reranking.pair_match import PairMatch
from umpteen.ranking.reranking.reranker import Reranker, remove_others
from umpteen.ranking.reranking.shortlist import Shortlist, shortlist
from umpteen.ranking.reranking.spec import RERANKER, Reranking
from umpteen.ranking.reranking.text_match import TextMatch
from umpteen.ranking.reranking.token_match import TokenMatch
from umpteen.ranking.storage import StoredEnsemble, load_ensemble
from umpteen.ranking.variant_fitting import (
    ValidationCandidates,
    calibrated_variant,
    cross_fitted_scores,
)
from umpteen.ranking.variants import VARIANT_METRICS, Variant
from umpteen.run_folder import RunFolder
from umpteen.training.ensemble_validation import TEXTS_AT_ONCE, Judge, judge_of
from umpteen.training.prepare import default_cache, training_splits, with_configured_propensity
from umpteen.training.rerank_texts import Retrieved, out_of_fold, retrieve
from umpteen.types import Log

TEXTS_SEEN = 200_000
"""That a network of features is trained on in all its epochs."""
HELD_SHARE, MAX_HELD = 0.2, 2000
"""Out-of-fold texts that the re-ranker is not trained on: the decision is taken on them too."""


@dataclass(frozen=True)
class RerankOptions:
    """What is fitted."""

    kind: str = "features"
    encoder: str | None = None
    """Folder or name of the transformer, for ``cross-encoder``."""
    candidates: int = 50
    folds: int = 1
    epochs: int | None = None
    """By default 5 to 40 for features, fewer with more texts, and 4 for a cross-encoder."""
    negatives: int = 12
    """Wrong candidates of a text in a step of a cross-encoder."""
    keep: str = "auto"
    """``auto`` where validation shows a gain, ``always``, or ``never``."""
    seconds: float = math.inf
    """For training the network."""


@dataclass(frozen=True)
class RerankOutcome:
    """What was found on validation."""

    before: Variant
    after: Variant
    """With re-ranking, whether it is used or not."""
    decision: Decision
    used: bool
    ensemble: StoredEnsemble
    """With re-ranking, for ``Predictor.use_ensemble``; written to the run where it is used."""


@dataclass(frozen=True)
class RunToRerank:
    """A run with what its re-ranker is fitted to."""

    folder: RunFolder
    settings: RunConfig
    dataset: Dataset
    predictor: Predictor
    stored: StoredEnsemble
    model: EnsembleModel
    """Without re-ranking."""
    judge: Judge


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
        folder: A trained run with an ensemble that was fitted on validation texts.
        data: The data it was trained on.
        settings: The run's.
        options: What to fit.
        device: Where to train and rank.
        log: Called with progress lines.
        cache: Where token stores are kept; by default the user's cache folder.

    Returns:
        Metrics with and without re-ranking, and the decision.

    Raises:
        ConfigError: If the run has no ensemble, or too few validation texts.
    """
    run = load_run(folder, data, settings, device)
    text_match = TextMatch.of(run.predictor.labels.encoder_texts(run.predictor.text_config.text))
    examples, texts = out_of_fold(
        run.dataset, settings, run.model, text_match,
        folds=options.folds, n=options.candidates, cache=cache or default_cache(),
        device=device, log=log,
    )  # fmt: skip
    return fit_and_decide(run, text_match, examples, texts, options, log=log)


def fit_and_decide(
    run: RunToRerank,
    text_match: TextMatch,
    examples: RerankExamples,
    texts: list[str],
    options: RerankOptions,
    *,
    log: Log,
) -> RerankOutcome:
    """Train on out-of-fold texts, decide on others of them and on validation, and save.

    Args:
        run: The run.
        text_match: Of its labels.
        examples: From ``out_of_fold``.
        texts: The texts that they number.
        options: What to fit.
        log: Called with progress lines.

    Returns:
        Metrics with and without re-ranking, and the decision.
    """
    is_held = _held_texts(len(texts), run.settings.seed)[examples.texts.cpu().numpy()]
    held = torch.from_numpy(is_held).to(examples.rows.device)
    fitted_on = f"{len(texts) - len(np.unique(examples.texts.cpu()[is_held])):,} out-of-fold texts"
    log(f"Training the re-ranker ({options.kind}) on {fitted_on}")
    started = time.monotonic()
    reranker, pairs = train_reranker(run, text_match, examples.select(~held), texts, options, log)
    took = time.monotonic() - started
    data, own = validation_of(run)
    part = _reranked(run, data, own, reranker, options.candidates)
    decision = decide([part, _reranked_held(run, examples.select(held), reranker, pairs)],
                      run.settings.seed)  # fmt: skip
    variant = run.model.variants[0]
    before = calibrated_variant(data, variant.weights, variant.tail_boost, part.scores)
    added = part.added(decision.weight, decision.min_share)
    after = calibrated_variant(data, variant.weights, variant.tail_boost, part.scores + added)
    labels, n = run.predictor.labels, options.candidates
    cost = measure_cost(reranker, labels, own.texts, own.found, variant, n)
    spec = Reranking(
        options.kind, "-", "-", options.candidates, decision.weight, decision.min_share,
        cost,
        f"{fitted_on} in {took:.0f} s",
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


def train_reranker(
    run: RunToRerank,
    text_match: TextMatch,
    examples: RerankExamples,
    texts: list[str],
    options: RerankOptions,
    log: Log,
) -> tuple[Reranker, PairTexts | None]:
    """Train the network, and for a cross-encoder its transformer too.

    Raises:
        ConfigError: If a cross-encoder has no encoder.
    """
    predictor, retrievers = run.predictor, run.model.variants[0].retrievers
    encoder, pairs = None, None
    epochs = options.epochs or min(40, max(5, round(TEXTS_SEEN / max(1, len(examples)))))
    train = TrainOptions(epochs, seed=run.settings.seed, seconds=options.seconds)
    if options.kind == "cross-encoder":
        if options.encoder is None:
            raise ConfigError("a cross-encoder needs --encoder FOLDER, a Hugging Face encoder")
        torch.manual_seed(run.settings.seed)
        limit = predictor.text_config.max_tokens
        encoder = PairEncoder.pretrained(options.encoder, text_tokens=min(128, limit + 2))
        encoder = encoder.to(predictor.encoder.device)
        labels = predictor.labels.encoder_texts(predictor.text_config.text)
        pairs = PairTexts(encoder.texts(texts), encoder.labels(labels))
        train = replace(train, epochs=options.epochs or 4, batch=32, negatives=options.negatives)
    torch.manual_seed(run.settings.seed)
    network = ScoreNetwork(examples.features.shape[2], 0 if encoder is None else encoder.dim)
    network = network.to(examples.features.device)
    train_network(examples, network, train, encoder=encoder, pairs=pairs, log=log)
    which = predictor.text_config.text
    tokens = TokenMatch.of(predictor.encoder, predictor.labels.encoder_texts(which))
    match = PairMatch(text_match, tokens, which, encoder)
    return Reranker(retrievers, network, match, encoder), pairs


def load_run(folder: RunFolder, data: Dataset, settings: RunConfig, device: str) -> RunToRerank:
    """Load a run and the texts that its ensemble was fitted on.

    Raises:
        ConfigError: If it has no ensemble, or too few validation texts.
    """
    dataset = training_splits(with_configured_propensity(data, settings), settings)
    predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
    stored = load_ensemble(
        folder.ensemble,
        predictor.label_vectors,
        model=folder.model("best").name,
        again=f"umpteen fit-ensemble {folder.path} DATA",
        encoder=predictor.encoder,
    )
    if stored is None:
        raise ConfigError(
            f"{folder.path} has no ensemble to re-rank; fit one with: umpteen fit-ensemble "
            f"{folder.path} DATA"
        )
    model = without_reranking(stored.model)
    stored = replace(stored, model=model, reranker=None)
    predictor.use_ensemble(stored)
    judge = judge_of(dataset, predictor.propensity or data.propensity)
    least = settings.ensemble.min_queries
    if judge is None or int((np.diff(judge.truth.indptr) > 0).sum()) < least:
        raise ConfigError(
            f"{folder.path} has too few validation texts to measure a gain of re-ranking; it "
            f"takes {least} or more (validation.share, or a validation split)"
        )
    return RunToRerank(folder, settings, dataset, predictor, stored, model, judge)


def without_reranking(model: EnsembleModel) -> EnsembleModel:
    """Return the ensemble without a re-ranked variant."""
    plain = tuple(variant for variant in model.variants if variant.reranking is None)
    return replace(model, variants=plain)


def validation_of(run: RunToRerank) -> tuple[ValidationCandidates, Retrieved]:
    """Collect the candidates of the validation texts, as predictions get them."""
    own = retrieve(run.predictor, run.stored, run.model, run.judge)
    truth, n = run.judge.truth, len(run.judge.split)
    data = ValidationCandidates(
        own.found, own.positive, truth, run.judge.label_counts, run.model.propensity, run.judge,
        own.text_scores, truth.nnz / max(1, n), run.settings.seed,
    )  # fmt: skip
    return data, own


def _held_texts(n: int, seed: int) -> NDArray[np.bool_]:
    """(n,) which out-of-fold texts are not trained on."""
    held = np.zeros(n, np.bool_)
    order = np.random.default_rng([seed, 0x4E5]).permutation(n)
    held[order[: min(MAX_HELD, int(HELD_SHARE * n))]] = True
    return held


def _reranked(
    run: RunToRerank, data: ValidationCandidates, own: Retrieved, reranker: Reranker, n: int
) -> Reranked:
    """Score the validation texts; the ensemble's own scores are cross-fitted."""
    variant, found = run.model.variants[0], own.found
    base = cross_fitted_scores(data, variant.retrievers)
    rarity = data.propensity.log_inverse(found.counts.double())
    scores = base + variant.tail_boost * rarity
    chosen = shortlist(found, scores.float(), base.float(), n)
    values = torch.cat(
        [
            reranker.scores(
                own.texts[start : start + TEXTS_AT_ONCE],
                run.predictor.labels,
                found.select(torch.arange(start, min(len(found), start + TEXTS_AT_ONCE))),
                chosen.part(start, start + TEXTS_AT_ONCE),
            )
            for start in range(0, len(found), TEXTS_AT_ONCE)
        ]
    )
    return Reranked(found, scores, base, chosen, values, own.positive, rarity)


@torch.no_grad()
def _reranked_held(
    run: RunToRerank, held: RerankExamples, reranker: Reranker, pairs: PairTexts | None
) -> Reranked:
    """Score out-of-fold texts that the re-ranker was not trained on; without hidden labels."""
    first = np.unique(held.texts.cpu().numpy(), return_index=True)[1]
    held = held.select(torch.from_numpy(first).to(held.rows.device))
    counts = counts_of(held.rows, run.predictor.snapshot())
    rarity = run.model.propensity.log_inverse(counts.double())
    base = held.base.double()
    scores = base + run.model.variants[0].tail_boost * rarity
    places = torch.arange(held.rows.shape[1], device=held.rows.device).expand_as(held.rows)
    places = torch.where(held.rows >= 0, places, -1)
    blocks = [
        network_scores(held.select(some), reranker.network, reranker.encoder, pairs)
        for some in torch.arange(len(held), device=held.rows.device).split(TEXTS_AT_ONCE)
    ]
    values = torch.cat(blocks) if blocks else torch.zeros(held.rows.shape)
    found = Candidates(held.rows, {}, counts)
    chosen = Shortlist(places, held.rows, held.base)
    return Reranked(found, scores, base, chosen, values, held.positive, rarity)


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
