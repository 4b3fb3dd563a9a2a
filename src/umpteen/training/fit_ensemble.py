"""The last stage of training: fit the ensemble on texts that no scorer was trained on."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset, Split
from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.predictor import Predictor
from umpteen.ranking import RETRIEVERS
from umpteen.ranking.ensemble_model import EnsembleModel, KnnConfig
from umpteen.ranking.evidence import similarity_floor
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.prior import prior_calibration, prior_weights, unseen_share
from umpteen.ranking.retriever_specs import retrievers_of
from umpteen.ranking.retrievers.base import FitContext, Retriever
from umpteen.ranking.storage import StoredEnsemble, index_examples, save_ensemble
from umpteen.ranking.text_snippets import TextSnippets
from umpteen.ranking.thresholds import MAX_CALIBRATION_ERROR
from umpteen.ranking.trained_examples import TrainedExamples, digest_texts, ones_like
from umpteen.ranking.variant_fitting import ValidationCandidates, fit_variant, positives_of
from umpteen.ranking.variants import VARIANT_METRICS, Variant, choose_variant, scorer_combinations
from umpteen.ranking.variants import Propensity as LabelPropensity
from umpteen.registry import resolve
from umpteen.run_folder import RunFolder
from umpteen.training.carried_ensemble import UNFITTED, as_first_trained, carried_weights
from umpteen.training.cross_validation import FOLDS, FitFold, cross_validate
from umpteen.training.ensemble_validation import Collected, Judge, collect, judge_of
from umpteen.training.fit_time import (
    FIT_SECONDS,
    LEARNING_SHARE,
    MIN_FITTED,
    VARIANTS,
    FitTime,
    readable_rows,
    share_before_folds,
    texts_in_time,
)
from umpteen.training.prepare import default_cache, training_splits, with_configured_propensity
from umpteen.training.stage_log import QUIET, StageLog, as_stage_log
from umpteen.training.time_budget import FOLD_SHARE
from umpteen.types import Log, TopK

READING_SHARE = 0.4
"""Of the time for retrievers, for reading texts."""
TRIED_TEXTS = 64
"""Validation texts that the times of retrieval and of a fit are measured on."""
EXAMPLES_SEED, TEXTS_SEED = 0x3E3, 0x7E7
PRIOR_TEXTS = 500
"""Training texts that the similarity floor is taken from without validation texts."""


def fit_ensemble_of_run(
    folder: RunFolder,
    data: Dataset,
    settings: RunConfig,
    *,
    device: str = "auto",
    log: Log,
    again: bool = False,
    cache: Path | None = None,
    limit: FitTime | None = None,
    training_seconds: float = 0.0,
) -> EnsembleModel | None:
    """Fit the ensemble of a run, write it into its folder, return it; None where nothing is due.

    Args:
        folder: A trained run.
        data: The data it was trained on.
        settings: The run's.
        device: Where to encode and search.
        log: Called with progress lines.
        again: Fit it also where there is one already, or where settings switch it off.
        cache: Where token stores are kept; by default the user's cache folder.
        limit: When it must be done; ``ensemble.seconds`` from now if None, and then not strict.
        training_seconds: How long the run's own model took to train.
    """
    if not again and (settings.ensemble.enabled == "off" or _fitted(folder)):
        return None
    started, log = time.monotonic(), as_stage_log(log)
    dataset = training_splits(with_configured_propensity(data, settings), settings)
    with log.stage("Loading the model", announced=False):
        predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
    limit = limit or FitTime(started + settings.ensemble.seconds, strict=False)
    judge = judge_of(dataset, predictor.propensity or data.propensity)
    validated = judge is not None and _labelled(judge) >= settings.ensemble.min_queries
    fold = FOLD_SHARE * training_seconds, -(-len(dataset["train"]) // FOLDS)
    own_time = limit.part(_learning_share(limit, judge if validated else None, fold))
    predictor, stored = with_retrievers(folder, predictor, dataset, settings, own_time, log)
    found, took = None, time.monotonic() - started
    if not limit.allows(1.0):
        log("No time to fit weights: the ensemble has prior weights")
    elif judge is not None and validated:
        found = _collect_in_time(predictor, stored, judge, settings, limit, log)
    elif (carried := carried_weights(folder, stored)) is not None:
        stored = replace(stored, model=carried)  # folds would be trained from nothing
    else:
        found = cross_validate(
            replace(dataset, splits={"train": dataset["train"]}),
            as_first_trained(folder, settings),
            cache=cache or default_cache(),
            device=device,
            limit=limit,
            fold_seconds=FOLD_SHARE * training_seconds + took if limit.strict else 0.0,
            fit_fold=_fold_fitter(settings, own_time.until - started, strict=limit.strict),
            time_fit=partial(_fit_seconds, settings=settings),
            log=log,
        )
    stored = _with_weights(stored, found, settings, limit, log)
    save_ensemble(folder.ensemble, stored)
    _report(stored.model, folder, time.monotonic() - started, log)
    return stored.model


def _labelled(judge: Judge) -> int:
    return int(np.count_nonzero(np.diff(judge.truth.indptr)))


def _fold_fitter(settings: RunConfig, seconds: float, *, strict: bool) -> FitFold:
    """Return what fits the retrievers of a fold, in as much time as those of the run had."""

    def fit_fold(
        place: RunFolder, own: Predictor, part: Dataset
    ) -> tuple[Predictor, StoredEnsemble]:
        limit = FitTime(time.monotonic() + seconds, strict)
        return with_retrievers(place, own, part, settings, limit, QUIET)

    return fit_fold


def _with_weights(
    stored: StoredEnsemble,
    found: tuple[Collected, Judge] | None,
    settings: RunConfig,
    limit: FitTime,
    log: StageLog,
) -> StoredEnsemble:
    """Return the ensemble with weights fitted to candidates; with prior weights without any."""
    if found is not None:
        seconds = limit.left() + limit.slack
        model = fit_variants(*found, settings=settings, seconds=seconds, log=log)
        # Cross-validation fits on the models of folds; the weights are for the run's own model.
        model = replace(model, model=stored.model.model, propensity=stored.model.propensity)
        return replace(stored, model=model)
    if not limit.strict or not stored.model.fitted_on.startswith(UNFITTED):
        return stored
    why = f"{UNFITTED}: there was too little time, so it has prior weights"
    return replace(stored, model=replace(stored.model, fitted_on=why))


def with_retrievers(
    folder: RunFolder,
    predictor: Predictor,
    dataset: Dataset,
    settings: RunConfig,
    limit: FitTime,
    log: Log,
) -> tuple[Predictor, StoredEnsemble]:
    """Fit the retrievers and combine them with prior weights.

    Args:
        folder: The run.
        predictor: Its model.
        dataset: Its data; the train split is used.
        settings: The run's.
        limit: Time for it.
        log: Called with progress lines.

    Returns:
        The predictor with this ensemble, and the ensemble.
    """
    log = as_stage_log(log)
    retrievers, examples = fit_retrievers(
        predictor, dataset["train"], settings, limit=limit, log=log
    )
    index = None
    if examples is not None:
        what = f"Indexing {len(examples.vectors):,} examples"
        with log.stage(what, kind="example index", announced=False):
            index = index_examples(_comparable(predictor, examples))
    model = _prior_model(folder, retrievers, dataset)
    stored = StoredEnsemble(model, retrievers, examples, index, dataset.label_counts)
    predictor.use_ensemble(stored)
    if examples is not None:
        floor = _similarity_of_training_texts(predictor, examples)
        stored = replace(stored, model=replace(model, similarity_floor=floor))
        predictor.use_ensemble(stored)
    return predictor, stored


def fit_retrievers(
    predictor: Predictor, train: Split, settings: RunConfig, *, limit: FitTime, log: StageLog
) -> tuple[dict[str, Retriever], TrainedExamples | None]:
    """Learn what retrievers need, and store the training texts.

    Args:
        predictor: The trained model.
        train: The training texts, without those held out.
        settings: The run's.
        limit: Time for it; where it is strict, texts are left out that cannot be read in time.
        log: Called with progress lines.

    Returns:
        Name to retriever, and the stored examples where the settings want them.
    """
    which = predictor.text_config.text
    if len(train) > settings.ensemble.max_texts:
        rng = np.random.default_rng([settings.seed, TEXTS_SEED])
        train = train.select(np.sort(rng.permutation(len(train))[: settings.ensemble.max_texts]))
    if limit.strict:
        train = _readable(predictor, train, settings, limit, log)
    texts = list(train.texts(which))
    targets = ones_like(train.filtered_targets())
    context = FitContext(
        texts,
        targets,
        predictor.labels.encoder_texts(which),
        train.filters,
        predictor.label_vectors,
        predictor.encoder.device,
        limit.left() if limit.strict else LEARNING_SHARE * settings.ensemble.seconds,
        settings.seed,
        log,
        stores_examples=settings.examples.kept != "none",
        until=limit.until if limit.strict else math.inf,
        lexical=settings.ensemble.lexical,
    )
    what = f"Fitting lexical scorers on {len(texts):,} texts (up to {context.seconds:.0f} s)"
    with log.stage(what, kind="lexical", announced=context.lexical):
        for name in RETRIEVERS:
            retriever = resolve(RETRIEVERS, name, kind="retriever").fit(context)
            if retriever is not None:
                context.fitted[name] = retriever
    if not context.stores_examples:
        return context.fitted, None
    kept = np.arange(len(texts))
    if len(kept) > settings.examples.max_examples:
        rng = np.random.default_rng([settings.seed, EXAMPLES_SEED])
        kept = np.sort(rng.permutation(len(kept))[: settings.examples.max_examples])
    chosen = [texts[row] for row in kept.tolist()]
    terms = context.terms
    if terms is None:
        terms = sp.csr_matrix((len(texts), 0), dtype=np.float32)
    with log.stage(f"Storing {len(chosen):,} training texts as examples", kind="examples"):
        shown = TextSnippets.of(chosen) if settings.examples.texts else None
        vectors = predictor.vectors(chosen).cpu().numpy()
    examples = TrainedExamples(vectors, targets[kept], digest_texts(chosen), terms[kept], shown)
    return context.fitted, examples


def fit_variants(
    found: Collected, judge: Judge, *, settings: RunConfig, seconds: float, log: StageLog
) -> EnsembleModel:
    """Fit the weights and the calibration of every variant, and choose the default one.

    Args:
        found: Candidates of validation texts.
        judge: The texts.
        settings: The run's.
        seconds: No further variant is fitted after this long; the first always is.
        log: Called with progress lines.

    Returns:
        The ensemble, the chosen variant first.
    """
    n, started, truth = len(judge.split), time.monotonic(), judge.truth
    log(f"Fitting the ensemble on {judge.described} (up to {max(0.0, seconds):.0f} s)")
    log("Metrics of the scorers together, without one of them, and of the model's heads, percent:")
    data = ValidationCandidates(
        found.candidates,
        positives_of(found.candidates, truth),
        truth,
        judge.label_counts,
        found.model.propensity,
        judge,
        found.text_scores,
        truth.nnz / max(1, n),
        settings.seed,
    )
    variants: list[Variant] = []
    combinations = scorer_combinations(found.names)
    longest = 0.0
    for scorers in combinations:
        began = time.monotonic()
        if variants and began - started + longest > seconds:
            log(f"No time for more than {len(variants)} of {len(combinations)} variants")
            break
        own = retrievers_of(scorers, found.names)
        with log.stage("Fitting a variant of the ensemble", kind="variants", announced=False):
            variants.append(fit_variant(data, own, settings.ensemble.tail_boost))
        longest = max(longest, time.monotonic() - began)
        log(f"{', '.join(scorers)}: {_in_words(variants[-1].validation)}")
    values = [variant.validation for variant in variants]
    best = choose_variant(values, judge(found.plain), n)
    return replace(
        found.model,
        variants=(variants[best], *variants[:best], *variants[best + 1 :]),
        fitted_on=judge.described,
    )


def _readable(
    predictor: Predictor, train: Split, settings: RunConfig, limit: FitTime, log: StageLog
) -> Split:
    """Return the training texts that can be read in time."""
    texts = train.texts(predictor.text_config.text)

    def read(some: list[str]) -> None:
        predictor.vectors(some)
        if settings.ensemble.lexical:
            Vectorizer.fit(some).transform(some)

    seconds = READING_SHARE * limit.left()
    rows = readable_rows(texts, read, seconds=seconds, seed=settings.seed)
    if len(rows) == len(texts):
        return train
    log(f"Fitting the ensemble on {len(rows):,} of {len(texts):,} texts, to stay within the time")
    return train.select(rows)


def _learning_share(limit: FitTime, judge: Judge | None, fold: tuple[float, int]) -> float:
    """Return the share of the time for retrievers; the judge is None in a cross-validation."""
    if judge is None:
        return share_before_folds(limit, *fold)
    if not limit.strict:
        return LEARNING_SHARE
    return max(
        LEARNING_SHARE, 1.0 - VARIANTS * FIT_SECONDS * len(judge.split) / max(1.0, limit.left())
    )


def _collect_in_time(
    predictor: Predictor,
    stored: StoredEnsemble,
    judge: Judge,
    settings: RunConfig,
    limit: FitTime,
    log: StageLog,
) -> tuple[Collected, Judge]:
    """Collect the candidates of validation texts, of as many as can be fitted in time."""
    if limit.strict and len(judge.split) > MIN_FITTED:
        some = judge.first(TRIED_TEXTS)
        collect(predictor, stored, some)  # the first call builds what later ones share
        started = time.monotonic()
        found = collect(predictor, stored, some)
        collected = (time.monotonic() - started) / TRIED_TEXTS
        fit = _fit_seconds(found, some, settings=settings)
        fitting = texts_in_time(
            limit.left(),
            collect=collected,
            fit=fit,
            variants=len(scorer_combinations(found.names)),
        )
        if fitting < len(judge.split):
            log(
                f"Fitting on {fitting:,} of {len(judge.split):,} validation texts, "
                "to stay within the time"
            )
            judge = judge.first(fitting)
    what = f"Searching labels of {len(judge.split):,} validation texts"
    with log.stage(what, kind="candidates", announced=False):
        return collect(predictor, stored, judge), judge


def _fit_seconds(found: Collected, judge: Judge, *, settings: RunConfig) -> float:
    """Return the measured time to fit one variant to one text."""
    started = time.monotonic()
    fit_variants(found, judge, settings=settings, seconds=0.0, log=QUIET)
    return (time.monotonic() - started) / max(1, len(judge.split))


def _prior_model(
    folder: RunFolder, retrievers: dict[str, Retriever], dataset: Dataset
) -> EnsembleModel:
    """Return the ensemble that is used before anything was fitted to validation texts."""
    names, train = tuple(retrievers), dataset["train"]
    per_text = train.filtered_targets().nnz / max(1, len(train))
    about = dataset.propensity
    variants = []
    for scorers in scorer_combinations(names):
        own = retrievers_of(scorers, names)
        calibration = prior_calibration(own, per_text)
        weights = prior_weights(own, unseen_share(dataset.label_counts))
        variants.append(Variant(weights, 0.0, calibration, {}, {}))
    return EnsembleModel(
        tuple(variants),
        KnnConfig(),
        KnnConfig(),
        LabelPropensity(about.a, about.b, len(train)),
        folder.model("best").name,
        f"{UNFITTED}: there are too few texts, so it has prior weights",
        -np.inf,
    )


def _similarity_of_training_texts(predictor: Predictor, examples: TrainedExamples) -> float:
    """Return the similarity floor from training texts: to the nearest other one of them."""
    step = max(1, len(examples.vectors) // PRIOR_TEXTS)
    vectors = torch.from_numpy(np.array(examples.vectors[::step])).to(predictor.encoder.device)
    near = predictor.snapshot().examples.nearest(vectors, 2)
    return similarity_floor(TopK(near.rows[:, 1:], near.scores[:, 1:]))


def _comparable(predictor: Predictor, examples: TrainedExamples) -> torch.Tensor:
    vectors = torch.from_numpy(np.asarray(examples.vectors)).to(predictor.encoder.device)
    return vectors if predictor.model.normalize else torch.nn.functional.normalize(vectors, dim=1)


def _report(model: EnsembleModel, folder: RunFolder, seconds: float, log: Log) -> None:
    best = model.variants[0]
    size = sum(f.stat().st_size for f in folder.ensemble.rglob("*") if f.is_file())
    log(
        f"Ensemble of {', '.join(best.scorers)}, fitted on {model.fitted_on}: {seconds:.0f} s, "
        f"{size / 2**20:.1f} MiB in {folder.ensemble}"
    )
    error = best.validation.get("ECE")
    if error is not None:
        log(f"Calibration error of its probabilities: {error:.2f} points")
        if error > MAX_CALIBRATION_ERROR:
            log(
                f"Warning: probabilities are off by {error:.1f} points on average; "
                "check them before you use a threshold"
            )
    if not best.converged:
        log("Warning: a fit of the ensemble did not converge; its probabilities may be off")


def _in_words(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {values[name]:.2f}" for name in VARIANT_METRICS)


def _fitted(folder: RunFolder) -> bool:
    file = folder.ensemble / "ensemble.json"
    if not file.is_file():
        return False
    value = read_json(file, error=RunError)
    return isinstance(value, dict) and value.get("model") == folder.model("best").name
