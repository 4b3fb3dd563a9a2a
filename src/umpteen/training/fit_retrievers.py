"""Fit the retrievers of an ensemble, with prior weights or those of the run it started from."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.config.known_datasets import lay_over
from umpteen.config.schema import RunConfig
from umpteen.config.settings import from_mapping, to_json
from umpteen.data.dataset import Dataset, Split
from umpteen.log_lines import Detail
from umpteen.predictor import Predictor
from umpteen.ranking import RETRIEVERS
from umpteen.ranking.adjustments import similarity_floor
from umpteen.ranking.ensemble_model import EnsembleModel, KnnConfig
from umpteen.ranking.lexical.held_out import LabelledTexts
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.prior import prior_calibration, prior_weights, unseen_share
from umpteen.ranking.retriever_specs import retrievers_of
from umpteen.ranking.retrievers.base import FitContext, Retriever
from umpteen.ranking.storage import StoredEnsemble, index_examples
from umpteen.ranking.trained_examples import TextSnippets, TrainedExamples, digest_texts, ones_like
from umpteen.ranking.variants import PropensityModel, Variant, scorer_combinations
from umpteen.registry import resolve
from umpteen.run_folder import RunFolder
from umpteen.training.fit_time import LEARNING_SHARE, FitTime, readable_rows
from umpteen.training.stage_log import StageLog, as_stage_log
from umpteen.training.warm_settings import GROWN
from umpteen.training.warm_start import WarmStart
from umpteen.types import Log, TopK

Encode = Callable[[list[str]], torch.Tensor]
"""From texts to search vectors, as ``Predictor.vectors``."""

READING_SHARE = 0.4
"""Of the time for retrievers, for reading texts."""
EXAMPLES_SEED, TEXTS_SEED = 0x3E3, 0x7E7
PRIOR_TEXTS = 500
"""Training texts that the similarity floor is taken from without validation texts."""


def carried_weights(folder: RunFolder, stored: StoredEnsemble) -> EnsembleModel | None:
    """Return the weights of the run that training started from, if they were fitted and fit.

    For a cross-validation models would have to be trained from nothing, as long as that run. That
    is done where there are far more texts now: weights for a few texts do not fit many.
    """
    file = folder.origin / "ensemble.json"
    if not file.is_file():
        return None
    before, own = EnsembleModel.load(file), stored.model
    used = {name for variant in before.variants for name in variant.retrievers}
    grown = own.n_train > GROWN * before.n_train
    if grown or not before.is_fitted or used != set(stored.retrievers):
        return None
    return replace(
        before, model=own.model, propensity=own.propensity, similarity_floor=own.similarity_floor
    )


def names_from_start(folder: RunFolder, predictor: Predictor) -> Retriever | None:
    """Return what scores label names as the run did that this one was trained from."""
    start = WarmStart.of(folder)
    return None if start is None else start.names(predictor.labels, predictor.encoder.device)


def as_first_trained(folder: RunFolder, settings: RunConfig) -> RunConfig:
    """Return settings with the whole schedule, for models that do not start from another run."""
    start = WarmStart.of(folder)
    if start is None:
        return settings
    return from_mapping(lay_over(to_json(settings), start.schedule), source=str(folder.config))


def with_retrievers(
    folder: RunFolder,
    predictor: Predictor,
    dataset: Dataset,
    settings: RunConfig,
    limit: FitTime,
    log: Log,
    names: Retriever | None = None,
    held_out: Split | None = None,
    encode: Encode | None = None,
    wanted: Collection[str] | None = None,
) -> tuple[Predictor, StoredEnsemble]:
    """Store the training texts, fit the retrievers and combine them with prior weights.

    Examples are encoded and indexed first: that cannot be cut short, and fits can. On ``held_out``,
    texts that are not in the train split, retrievers choose how they learn. ``encode`` encodes in
    place of the predictor. The model of a fold has the ``wanted`` retrievers, those of its run.
    """
    log, encode = as_stage_log(log), encode or predictor.vectors
    train, texts, kept = texts_of_examples(predictor, dataset, settings, limit, log)
    chosen, vectors, index = [texts[row] for row in kept.tolist()], None, None
    if settings.examples.kept != "none":
        with log.stage(f"Storing {len(chosen):,} training texts as examples", kind="examples"):
            vectors = encode(chosen).cpu().numpy()
        what = f"Indexing {len(chosen):,} examples"
        with log.stage(what, kind="example index", announced=False):
            index = index_examples(_comparable(predictor, vectors))
    context = fit_retrievers(
        predictor, train, texts, settings, limit=limit, log=log, names=names, held_out=held_out,
        wanted=wanted,
    )  # fmt: skip
    model = _prior_model(folder, context.fitted, dataset)
    examples = None
    if vectors is not None:
        terms = context.terms
        if terms is None:
            terms = sp.csr_matrix((len(texts), 0), dtype=np.float32)
        shown = TextSnippets.of(chosen) if settings.examples.texts else None
        examples = TrainedExamples(
            vectors, context.targets[kept], digest_texts(chosen), terms[kept], shown
        )
    stored = StoredEnsemble(model, context.fitted, examples, index, dataset.label_counts)
    predictor.use_ensemble(stored)
    if examples is not None:
        floor = _similarity_of_training_texts(predictor, examples)
        stored = replace(stored, model=replace(model, similarity_floor=floor))
        predictor.use_ensemble(stored)
    return predictor, stored


def texts_of_examples(
    predictor: Predictor, dataset: Dataset, settings: RunConfig, limit: FitTime, log: StageLog
) -> tuple[Split, list[str], NDArray[np.int64]]:
    """Return the texts that retrievers learn from, as a split and as text, and the examples' rows.

    The same on every rank where the limit is not strict.
    """
    train = _used_texts(predictor, dataset["train"], settings, limit, log)
    texts = list(train.texts(predictor.text_config.text))
    no_examples = settings.examples.kept == "none"
    return train, texts, np.arange(0) if no_examples else _kept_examples(len(texts), settings)


def fit_retrievers(
    predictor: Predictor,
    train: Split,
    texts: list[str],
    settings: RunConfig,
    *,
    limit: FitTime,
    log: StageLog,
    names: Retriever | None = None,
    held_out: Split | None = None,
    wanted: Collection[str] | None = None,
) -> FitContext:
    """Learn what retrievers need; return it with the retrievers, by name."""
    judging = None
    if held_out is not None:
        texts_of = list(held_out.texts(predictor.text_config.text))
        judging = LabelledTexts(texts_of, held_out.filtered_targets(), held_out.filters)
    context = FitContext(
        texts,
        ones_like(train.filtered_targets()),
        predictor.labels.encoder_texts(predictor.text_config.text),
        train.filters,
        predictor.label_vectors,
        predictor.encoder.device,
        limit.left() if limit.strict else LEARNING_SHARE * settings.ensemble.seconds,
        settings.seed,
        log,
        stores_examples=settings.examples.kept != "none",
        until=limit.until if limit.strict else math.inf,
        lexical=settings.ensemble.lexical,
        names=names,
        held_out=judging,
        wanted=None if wanted is None else frozenset(wanted),
    )
    what = f"Fitting lexical scorers on {len(texts):,} texts (up to {context.seconds:.0f} s)"
    with log.stage(what, kind="lexical", announced=context.lexical):
        for name in (each for each in RETRIEVERS if wanted is None or each in wanted):
            retriever = resolve(RETRIEVERS, name, kind="retriever").fit(context)
            if retriever is not None:
                context.fitted[name] = retriever
    return context


def _used_texts(
    predictor: Predictor, train: Split, settings: RunConfig, limit: FitTime, log: StageLog
) -> Split:
    """Return the training texts that retrievers learn from: all, or as many as allowed."""
    if len(train) > settings.ensemble.max_texts:
        rng = np.random.default_rng([settings.seed, TEXTS_SEED])
        train = train.select(np.sort(rng.permutation(len(train))[: settings.ensemble.max_texts]))
    return _readable(predictor, train, settings, limit, log) if limit.strict else train


def _kept_examples(n: int, settings: RunConfig) -> NDArray[np.int64]:
    """Return the rows of the texts that are stored as examples."""
    kept = np.arange(n)
    if n <= settings.examples.max_examples:
        return kept
    rng = np.random.default_rng([settings.seed, EXAMPLES_SEED])
    return np.sort(rng.permutation(n)[: settings.examples.max_examples])


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
    few = f"Fitting the ensemble on {len(rows):,} of {len(texts):,} texts, to stay within the time"
    log(Detail(few))
    return train.select(rows)


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
        PropensityModel(about.a, about.b, len(train)),
        folder.model("best").name,
        "nothing: there are too few texts, so it has prior weights",
        -np.inf,
    )


def _similarity_of_training_texts(predictor: Predictor, examples: TrainedExamples) -> float:
    """Return the similarity floor from training texts: to the nearest other one of them.

    A single text has no other, so only the same text is near enough.
    """
    step = max(1, len(examples.vectors) // PRIOR_TEXTS)
    vectors = torch.from_numpy(np.array(examples.vectors[::step])).to(predictor.encoder.device)
    near = predictor.snapshot().examples.nearest(vectors, 2)
    first = min(1, len(examples.vectors) - 1)
    return similarity_floor(TopK(near.rows[:, first:], near.scores[:, first:]))


def _comparable(predictor: Predictor, vectors: NDArray[np.float32]) -> torch.Tensor:
    found = torch.from_numpy(vectors).to(predictor.encoder.device)
    return found if predictor.model.normalize else torch.nn.functional.normalize(found, dim=1)
