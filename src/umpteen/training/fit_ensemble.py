"""The last stage of training: fit the ensemble on texts that no scorer was trained on."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset, Propensity
from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.log_lines import Detail
from umpteen.predictor import Predictor
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.retriever_specs import retrievers_of
from umpteen.ranking.retrievers.base import Retriever
from umpteen.ranking.storage import StoredEnsemble, save_ensemble
from umpteen.ranking.thresholds import MAX_CALIBRATION_ERROR
from umpteen.ranking.variant_fitting import ValidationCandidates, fit_variant, positives_of
from umpteen.ranking.variants import VARIANT_METRICS, Variant, choose_variant, scorer_combinations
from umpteen.run_folder import RunFolder
from umpteen.training.cross_validation import FOLDS, FitFold, cross_validate
from umpteen.training.encode_on_ranks import vectors_for_first
from umpteen.training.ensemble_validation import Collected, Judge, collect, judge_of
from umpteen.training.fit_retrievers import (
    Encode,
    as_first_trained,
    carried_weights,
    names_from_start,
    texts_of_examples,
    with_retrievers,
)
from umpteen.training.fit_time import (
    FIT_SECONDS,
    LEARNING_SHARE,
    MIN_FITTED,
    VARIANTS,
    FitTime,
    share_before_folds,
    texts_in_time,
)
from umpteen.training.prepare import default_cache, training_splits, with_configured_propensity
from umpteen.training.same_labels import require_same_labels
from umpteen.training.stage_log import QUIET, StageLog, as_stage_log, log_table
from umpteen.training.time_budget import FOLD_SHARE
from umpteen.types import Log

TRIED_TEXTS = 64
"""Validation texts that the times of retrieval and of a fit are measured on."""


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
    ranks: Ranks = ONE_RANK,
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
        ranks: All must call it. Each encodes its share, the first fits; the others return None.
    """
    if not ranks.json_from_first(_is_due(folder, settings, again=again)):
        return None
    started, log = time.monotonic(), as_stage_log(log)
    predictor = _loaded(folder, data, device, log)
    dataset, judge = _splits(data, settings, predictor.propensity or data.propensity)
    limit = limit or FitTime(started + settings.ensemble.seconds, strict=False)
    encode = partial(vectors_for_first, predictor.vectors, ranks=ranks)
    if not ranks.first:
        _encode_share(encode, predictor, dataset, judge, settings, limit)
        return None
    own_time = limit.part(_learning_share(limit, judge, training_seconds, len(dataset["train"])))
    names, held_out = names_from_start(folder, predictor), None if judge is None else judge.split
    predictor, stored = with_retrievers(
        folder, predictor, dataset, settings, own_time, log, names, held_out, encode
    )
    found, took = None, time.monotonic() - started
    if not limit.allows(1.0):
        log("No time to fit weights: the ensemble has prior weights")
    elif judge is not None:
        found = _collect_in_time(predictor, stored, judge, settings, limit, log, encode)
    elif (carried := carried_weights(folder, stored)) is not None:
        stored = replace(stored, model=carried)  # folds would be trained from nothing
    else:
        found = cross_validate(
            replace(dataset, splits={"train": dataset["train"]}),
            as_first_trained(folder, settings),
            cache=cache or default_cache(), device=device, limit=limit,
            fold_seconds=FOLD_SHARE * training_seconds + took if limit.strict else 0.0,
            fit_fold=_fold_fitter(settings, own_time.until - started, limit.strict, names, stored),
            time_fit=partial(_fit_seconds, settings=settings), log=log,
        )  # fmt: skip
    return _saved(folder, _with_weights(stored, found, settings, limit, log), started, log)


def _loaded(folder: RunFolder, data: Dataset, device: str, log: StageLog) -> Predictor:
    with log.stage("Loading the model", announced=False):
        predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
    require_same_labels(predictor, data, folder)
    return predictor


def _splits(
    data: Dataset, settings: RunConfig, propensity: Propensity
) -> tuple[Dataset, Judge | None]:
    """Return the splits of training, and the validation split as a judge.

    The judge is None where too few texts have labels.
    """
    dataset = training_splits(with_configured_propensity(data, settings), settings)
    judge = judge_of(dataset, propensity)
    n = 0 if judge is None else int(np.count_nonzero(np.diff(judge.truth.indptr)))
    return dataset, judge if n >= settings.ensemble.min_queries else None


def _encode_share(
    encode: Encode,
    predictor: Predictor,
    dataset: Dataset,
    judge: Judge | None,
    settings: RunConfig,
    limit: FitTime,
) -> None:
    """Encode this rank's share of what the first rank encodes, in the same order."""
    if settings.examples.kept != "none":
        _, texts, kept = texts_of_examples(predictor, dataset, settings, limit, QUIET)
        encode([texts[row] for row in kept.tolist()])
    if judge is not None:
        encode(list(judge.split.texts(predictor.text_config.text)))


def _fold_fitter(
    settings: RunConfig,
    seconds: float,
    strict: bool,
    names: Retriever | None,
    of_run: StoredEnsemble,
) -> FitFold:
    """Return what fits the run's retrievers in a fold, in as much time as those of the run had."""

    def fit_fold(
        place: RunFolder, own: Predictor, part: Dataset
    ) -> tuple[Predictor, StoredEnsemble]:
        limit = FitTime(time.monotonic() + seconds, strict)
        wanted = of_run.retrievers
        return with_retrievers(place, own, part, settings, limit, QUIET, names, wanted=wanted)

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
        # The slack is left for a variant that takes longer than the one before, and for saving.
        model = fit_variants(*found, settings=settings, seconds=limit.left(), log=log)
        # Cross-validation fits on the models of folds; the weights are for the run's own model.
        model = replace(model, model=stored.model.model, propensity=stored.model.propensity)
        return replace(stored, model=model)
    if not limit.strict or stored.model.is_fitted:
        return stored
    why = "nothing: there was too little time, so it has prior weights"
    return replace(stored, model=replace(stored.model, fitted_on=why))


def fit_variants(
    found: Collected, judge: Judge, *, settings: RunConfig, seconds: float, log: StageLog
) -> EnsembleModel:
    """Fit the weights and the calibration of every variant, and choose the default one."""
    n, started, truth = len(judge.split), time.monotonic(), judge.truth
    log(f"Fitting the ensemble on {judge.described} (up to {max(0.0, seconds):.0f} s)")
    together = "Metrics of the scorers together, without one of them, and of the model's heads, %:"
    log(Detail(together))
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
            log(Detail(f"No time for more than {len(variants)} of {len(combinations)} variants"))
            break
        own = retrievers_of(scorers, found.names)
        with log.stage("Fitting a variant of the ensemble", kind="variants", announced=False):
            variants.append(fit_variant(data, own, settings.ensemble.tail_boost))
        longest = max(longest, time.monotonic() - began)
        log(Detail(f"{', '.join(scorers)}: {_in_words(variants[-1].validation)}"))
    values, plain = [variant.validation for variant in variants], judge(found.plain)
    best = choose_variant(values, plain, n)
    rows = {"model alone": plain, "ensemble": values[best]}
    log_table(rows, VARIANT_METRICS, judge.described, log)
    return replace(
        found.model,
        variants=(variants[best], *variants[:best], *variants[best + 1 :]),
        fitted_on=judge.described,
    )


def _learning_share(
    limit: FitTime, judge: Judge | None, training_seconds: float, n_train: int
) -> float:
    """Return the share of the time for retrievers; the judge is None in a cross-validation."""
    if judge is None:
        return share_before_folds(limit, FOLD_SHARE * training_seconds, -(-n_train // FOLDS))
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
    encode: Encode,
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
            limit.left(), collect=collected, fit=fit, variants=len(scorer_combinations(found.names))
        )
        if fitting < len(judge.split):
            few = f"Fitting on {fitting:,} of {len(judge.split):,} validation texts, "
            log(Detail(few + "to stay within the time"))
            judge = judge.first(fitting)
    what = f"Searching labels of {len(judge.split):,} validation texts"
    with log.stage(what, kind="candidates", announced=False):
        return collect(predictor, stored, judge, encode), judge


def _fit_seconds(found: Collected, judge: Judge, *, settings: RunConfig) -> float:
    """Return the measured time to fit one variant to one text."""
    fit_variants(found, judge, settings=settings, seconds=0.0, log=QUIET)  # loads and compiles
    started = time.monotonic()
    fit_variants(found, judge, settings=settings, seconds=0.0, log=QUIET)
    return (time.monotonic() - started) / max(1, len(judge.split))


def _saved(folder: RunFolder, stored: StoredEnsemble, started: float, log: Log) -> EnsembleModel:
    """Write the ensemble into the run folder, report it, return its model."""
    save_ensemble(folder.ensemble, stored)
    _report(stored.model, folder, time.monotonic() - started, log)
    return stored.model


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


def _is_due(folder: RunFolder, settings: RunConfig, *, again: bool) -> bool:
    if again or settings.ensemble.enabled == "off":
        return again
    file = folder.ensemble / "ensemble.json"
    if not file.is_file():
        return True
    value = read_json(file, error=RunError)
    return not isinstance(value, dict) or value.get("model") != folder.model("best").name
