"""The last stage of training: fit the ensemble on texts that no scorer was trained on."""

from __future__ import annotations

import math
import time
from dataclasses import replace
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
from umpteen.ranking.prior import prior_calibration, prior_weights
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
from umpteen.training.cross_validation import cross_validate
from umpteen.training.ensemble_validation import Collected, Judge, collect, judge_of
from umpteen.training.fit_time import FitTime, readable_rows
from umpteen.training.prepare import default_cache, training_splits, with_configured_propensity
from umpteen.training.time_budget import FOLD_SHARE
from umpteen.types import Log, TopK

LEARNING_SHARE = 0.6
"""Of the seconds of the whole fit, for what retrievers learn."""
FOLDED_SHARE = 0.25
"""The same in a cross-validation, where the retrievers of folds are fitted too."""
READING_SHARE = 0.4
"""Of the time for retrievers, for reading texts."""
FITTING_SHARE = 0.4
"""Of the time left, for fitting weights to validation texts."""
TRIED_TEXTS = 32
"""Validation texts that the time of retrieval is measured on."""
EXAMPLES_SEED = 0x3E3
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
    until: float | None = None,
    training_seconds: float = 0.0,
) -> EnsembleModel | None:
    """Fit the ensemble of a run and write it into its folder.

    It is fitted on the texts that validation used. With fewer than ``ensemble.min_queries`` of
    them it is cross-validated on the training texts; with too few of those it has prior weights.
    An ensemble of the same model is left alone.

    Args:
        folder: A trained run.
        data: The data it was trained on.
        settings: The run's.
        device: Where to encode and search.
        log: Called with progress lines.
        again: Fit again where there is one already, or where settings switch it off.
        cache: Where token stores are kept; by default the user's cache folder.
        until: When it must be done, in ``time.monotonic``; parts are then reduced or left out. By
            default ``ensemble.seconds`` from now, as a limit of what is learned.
        training_seconds: How long the run's own model took to train.

    Returns:
        What was fitted, or None where nothing was.
    """
    if not again and (settings.ensemble.enabled == "off" or _fitted(folder)):
        return None
    started = time.monotonic()
    dataset = training_splits(with_configured_propensity(data, settings), settings)
    predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
    limit = FitTime(until or started + settings.ensemble.seconds, strict=until is not None)
    judge = judge_of(dataset, predictor.propensity or data.propensity)
    validated = judge is not None and _labelled(judge) >= settings.ensemble.min_queries
    share = LEARNING_SHARE if validated or not limit.strict else FOLDED_SHARE
    own_time = limit.part(share)
    predictor, stored = with_retrievers(
        folder, predictor, dataset, settings, limit=own_time, log=log
    )
    took = time.monotonic() - started
    found: tuple[Collected, Judge] | None = None
    if not limit.allows(1.0):
        log("No time to fit weights: the ensemble has prior weights")
    elif judge is not None and validated:
        found = _collect_in_time(predictor, stored, judge, limit, log)
    else:
        found = cross_validate(
            _whole(dataset),
            settings,
            cache=cache or default_cache(),
            device=device,
            limit=limit.part(1.0 - FITTING_SHARE) if limit.strict else limit,
            fold_seconds=FOLD_SHARE * training_seconds + took if limit.strict else 0.0,
            fit_fold=lambda place, own, part: with_retrievers(
                place, own, part, settings, limit=_again(own_time, started), log=_silent
            ),
            log=log,
        )
    if found is not None:
        model = fit_variants(*found, settings=settings, seconds=limit.left(), log=log)
        # Cross-validation fits on the models of folds; the weights are for the run's own model.
        own = stored.model
        model = replace(model, model=own.model, propensity=own.propensity)
        # Folds of a cross-validation are fitted with models and counts of their own.
        model = replace(model, model=stored.model.model, propensity=stored.model.propensity)
        stored = replace(stored, model=model)
    elif limit.strict:
        why = "nothing: there was too little time, so it has prior weights"
        stored = replace(stored, model=replace(stored.model, fitted_on=why))
    save_ensemble(folder.ensemble, stored)
    _report(stored.model, folder, time.monotonic() - started, log)
    return stored.model


def with_retrievers(
    folder: RunFolder,
    predictor: Predictor,
    dataset: Dataset,
    settings: RunConfig,
    *,
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
    retrievers, examples = fit_retrievers(
        predictor, dataset["train"], settings, limit=limit, log=log
    )
    index = None if examples is None else index_examples(_comparable(predictor, examples))
    model = _prior_model(folder, retrievers, dataset)
    stored = StoredEnsemble(model, retrievers, examples, index, dataset.label_counts)
    predictor.use_ensemble(stored)
    if examples is not None:
        floor = _similarity_of_training_texts(predictor, examples)
        stored = replace(stored, model=replace(model, similarity_floor=floor))
        predictor.use_ensemble(stored)
    return predictor, stored


def fit_retrievers(
    predictor: Predictor, train: Split, settings: RunConfig, *, limit: FitTime, log: Log
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
    if limit.strict:
        train = _readable(predictor, train, settings, limit, log)
    texts = train.texts(which)
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
    if context.lexical:
        log(f"Fitting lexical scorers on {len(texts):,} texts (up to {context.seconds:.0f} s)")
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
    log(f"Storing {len(chosen):,} training texts as examples")
    terms = context.terms
    if terms is None:
        terms = sp.csr_matrix((len(texts), 0), dtype=np.float32)
    shown = TextSnippets.of(chosen) if settings.examples.texts else None
    vectors = predictor.vectors(chosen).cpu().numpy()
    examples = TrainedExamples(vectors, targets[kept], digest_texts(chosen), terms[kept], shown)
    return context.fitted, examples


def fit_variants(
    found: Collected, judge: Judge, *, settings: RunConfig, seconds: float, log: Log
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
    log(f"Fitting the ensemble on {n:,} validation texts (up to {max(0.0, seconds):.0f} s)")
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
            log(f"Time is up after {len(variants)} of {len(combinations)} variants")
            break
        own = retrievers_of(scorers, found.names)
        variants.append(fit_variant(data, own, settings.ensemble.tail_boost))
        longest = max(longest, time.monotonic() - began)
        log(f"{', '.join(scorers)}: {_in_words(variants[-1].validation)}")
    values = [variant.validation for variant in variants]
    best = choose_variant(values, judge(found.plain), n)
    return replace(
        found.model,
        variants=(variants[best], *variants[:best], *variants[best + 1 :]),
        fitted_on=f"{n:,} validation texts, cross-fitted",
    )


def _readable(
    predictor: Predictor, train: Split, settings: RunConfig, limit: FitTime, log: Log
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


def _collect_in_time(
    predictor: Predictor, stored: StoredEnsemble, judge: Judge, limit: FitTime, log: Log
) -> tuple[Collected, Judge]:
    """Collect the candidates of validation texts, of as many as there is time for."""
    if limit.strict and len(judge.split) > TRIED_TEXTS:
        started = time.monotonic()
        collect(predictor, stored, judge.first(TRIED_TEXTS))
        each = (time.monotonic() - started) / TRIED_TEXTS
        fitting = int((1.0 - FITTING_SHARE) * limit.left() / max(1e-9, each))
        if fitting < len(judge.split):
            judge = judge.first(max(fitting, 4 * TRIED_TEXTS))
            log(f"Fitting on {len(judge.split):,} validation texts, to stay within the time")
    return collect(predictor, stored, judge), judge


def _again(limit: FitTime, started: float) -> FitTime:
    """Return the same time once more, from now on."""
    return FitTime(time.monotonic() + limit.until - started, limit.strict)


def _whole(dataset: Dataset) -> Dataset:
    """Return the training texts alone."""
    return replace(dataset, splits={"train": dataset["train"]})


def _labelled(judge: Judge) -> int:
    return int((np.diff(judge.truth.indptr) > 0).sum())


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
        variants.append(Variant(prior_weights(own), 0.0, calibration, {}, {}))
    return EnsembleModel(
        tuple(variants),
        KnnConfig(),
        KnnConfig(),
        LabelPropensity(about.a, about.b, len(train)),
        folder.model("best").name,
        "nothing: there are too few texts, so it has prior weights",
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


def _silent(line: str) -> None:
    """Log nothing: the fits of single folds say nothing of the run."""


def _fitted(folder: RunFolder) -> bool:
    file = folder.ensemble / "ensemble.json"
    if not file.is_file():
        return False
    value = read_json(file, error=RunError)
    return isinstance(value, dict) and value.get("model") == folder.model("best").name
