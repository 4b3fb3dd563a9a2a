"""The last stage of training: fit the ensemble on texts that were held out, and write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.config import RunConfig
from umpteen.data.dataset import Dataset, Propensity, Split
from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.predictor import Predictor
from umpteen.ranking import RETRIEVERS
from umpteen.ranking.candidates import Candidates, concat
from umpteen.ranking.ensemble_model import EnsembleModel, KnnConfig
from umpteen.ranking.evidence import similarity_floor
from umpteen.ranking.lexical.ranker_training import SCALE
from umpteen.ranking.lexical.sparse_topk import look_up, product, top_k_of_rows
from umpteen.ranking.prior import prior_calibration, prior_weights
from umpteen.ranking.queries import Queries
from umpteen.ranking.ranker import DEPTH, EnsembleRanker
from umpteen.ranking.retriever_specs import retrievers_of
from umpteen.ranking.retrievers.base import FitContext, Retriever
from umpteen.ranking.retrievers.knn import Knn, LexicalKnn
from umpteen.ranking.retrievers.lexical import LexicalRetriever
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.storage import (
    StoredEnsemble,
    index_examples,
    save_ensemble,
    with_knn_configs,
)
from umpteen.ranking.text_snippets import TextSnippets
from umpteen.ranking.thresholds import MAX_CALIBRATION_ERROR
from umpteen.ranking.trained_examples import TrainedExamples, digest_texts, ones_like
from umpteen.ranking.variant_fitting import ValidationCandidates, fit_variant, positives_of
from umpteen.ranking.variants import (
    METRICS,
    Variant,
    choose_variant,
    scorer_combinations,
)
from umpteen.ranking.variants import Propensity as LabelPropensity
from umpteen.registry import resolve
from umpteen.runs import RunFolder
from umpteen.scoring import score
from umpteen.training.prepare import training_splits, with_told_propensity
from umpteen.types import TopK

Log = Callable[[str], None]
LEARNING_SHARE = 0.6
"""Of the seconds of the whole fit, for what retrievers learn."""
KNN_CONFIGS = tuple(KnnConfig(n, t) for n in (20, 50, 100) for t in (0.03, 0.05, 0.1, 0.2))
TEXTS_AT_ONCE = 512


@dataclass(frozen=True)
class Validation:
    """Texts that no scorer was trained on, with all that is needed to judge predictions."""

    split: Split
    queries: Queries
    truth: sp.csr_matrix
    label_counts: NDArray[np.int64]
    n_train: int
    propensity: Propensity

    def judge(self, top: TopK, metrics: tuple[str, ...] = METRICS) -> dict[str, float]:
        """Compute metrics in percent."""
        report = score(
            top,
            self.split,
            label_counts=self.label_counts,
            n_train=self.n_train,
            propensity=self.propensity,
            metrics=metrics,
        )
        return dict(report.values)


def fit_ensemble_of_run(
    folder: RunFolder,
    data: Dataset,
    settings: RunConfig,
    *,
    device: str = "auto",
    log: Log,
    again: bool = False,
) -> EnsembleModel | None:
    """Fit the ensemble of a run and write it into its folder.

    It is fitted on the texts that validation used: held out of training, of the stored examples
    and of what retrievers learn. An ensemble of the same model is left alone.

    Args:
        folder: A trained run.
        data: The data it was trained on.
        settings: The run's.
        device: Where to encode and search.
        log: Called with progress lines.
        again: Fit again where there is one already, or where settings switch it off.

    Returns:
        What was fitted, or None where nothing was.
    """
    if not again and (settings.ensemble.enabled == "off" or _fitted(folder)):
        return None
    started = time.monotonic()
    dataset = training_splits(with_told_propensity(data, settings), settings)
    predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
    retrievers, examples = fit_retrievers(predictor, dataset["train"], settings, log=log)
    stored = StoredEnsemble(
        _prior_model(folder, retrievers, dataset),
        retrievers,
        examples,
        None if examples is None else index_examples(_comparable(predictor, examples)),
        dataset.label_counts,
    )
    predictor.use_ensemble(stored)
    validation = _validation(predictor, dataset, data.propensity)
    if validation is not None:
        seconds = settings.ensemble.seconds - (time.monotonic() - started)
        model = fit_model(
            predictor, stored, validation, settings=settings, seconds=seconds, log=log
        )
        stored = StoredEnsemble(
            model, retrievers, examples, stored.example_index, stored.label_counts
        )
    save_ensemble(folder.ensemble, stored)
    _report(stored.model, folder, time.monotonic() - started, log)
    return stored.model


def fit_retrievers(
    predictor: Predictor, train: Split, settings: RunConfig, *, log: Log
) -> tuple[dict[str, Retriever], TrainedExamples | None]:
    """Learn what retrievers need, and store the training texts.

    Args:
        predictor: The trained model.
        train: The training texts, without those held out.
        settings: The run's.
        log: Called with progress lines.

    Returns:
        Name to retriever, and the stored examples where the settings want them.
    """
    which = predictor.reading.text
    texts = train.texts(which)
    targets = ones_like(train.filtered_targets())
    context = FitContext(
        texts,
        targets,
        predictor.labels.encoder_texts(which),
        train.filters,
        predictor.label_vectors,
        predictor.encoder.device,
        LEARNING_SHARE * settings.ensemble.seconds,
        settings.seed,
        log,
        stores_examples=settings.examples.kept != "none",
        lexical=settings.ensemble.lexical,
    )
    log(f"Fitting lexical scorers on {len(texts):,} texts (up to {context.seconds:.0f} s)")
    for name in RETRIEVERS:
        retriever = resolve(RETRIEVERS, name, kind="retriever").fit(context)
        if retriever is not None:
            context.fitted[name] = retriever
    if not context.stores_examples:
        return context.fitted, None
    kept = np.arange(len(texts))
    if len(kept) > settings.examples.max_examples:
        rng = np.random.default_rng([settings.seed, 0x3E3])
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


def fit_model(
    predictor: Predictor,
    stored: StoredEnsemble,
    validation: Validation,
    *,
    settings: RunConfig,
    seconds: float,
    log: Log,
) -> EnsembleModel:
    """Fit everything that is chosen on validation texts.

    Args:
        predictor: The model with the retrievers in use.
        stored: The retrievers and examples.
        validation: The texts.
        settings: The run's.
        seconds: No further variant is fitted after this long; the first always is.
        log: Called with progress lines.

    Returns:
        The ensemble, the chosen variant first.
    """
    n = len(validation.queries)
    log(f"Fitting the ensemble on {n:,} validation texts (up to {max(0.0, seconds):.0f} s)")
    started, snapshot = time.monotonic(), predictor.snapshot()
    first = _with_knn(stored, validation, snapshot)
    retrievers = with_knn_configs(stored.retrievers, first)
    names = tuple(retrievers)
    found = _candidates(EnsembleRanker(first, retrievers), validation, snapshot, names)
    data = ValidationCandidates(
        found,
        positives_of(found, validation.truth),
        validation.truth,
        validation.label_counts,
        first.propensity,
        validation.judge,
        _text_scores(retrievers, validation, snapshot, found),
        validation.truth.nnz / max(1, n),
        settings.seed,
    )
    variants: list[Variant] = []
    combinations = scorer_combinations(names)
    for scorers in combinations:
        if variants and time.monotonic() - started > seconds:
            log(f"Time is up after {len(variants)} of {len(combinations)} variants")
            break
        own = retrievers_of(scorers, names)
        variants.append(fit_variant(data, own, settings.ensemble.tail_boost))
        log(f"{', '.join(scorers)}: {_in_words(variants[-1].validation)}")
    head = predictor.vector_heads[-1]
    plain = predictor.rank(
        validation.queries, snapshot, 5, head=head, exclude=validation.split.filters
    )
    values = [variant.validation for variant in variants]
    best = choose_variant(values, validation.judge(plain), n)
    return EnsembleModel(
        (variants[best], *variants[:best], *variants[best + 1 :]),
        first.knn,
        first.lexical_knn,
        first.propensity,
        first.model,
        f"{n:,} validation texts, cross-fitted",
        first.similarity_floor,
    )


def _candidates(
    ranker: EnsembleRanker, validation: Validation, snapshot: Snapshot, names: tuple[str, ...]
) -> Candidates:
    blocks, filters = [], validation.split.filters
    for start in range(0, len(validation.queries), TEXTS_AT_ONCE):
        stop = min(len(validation.queries), start + TEXTS_AT_ONCE)
        kept = filters[(filters[:, 0] >= start) & (filters[:, 0] < stop)] - np.array([start, 0])
        some = validation.queries.block(start, stop)
        blocks.append(ranker.candidates(some, snapshot, names, depth=DEPTH, exclude=kept))
    return concat(blocks)


def _with_knn(stored: StoredEnsemble, validation: Validation, snapshot: Snapshot) -> EnsembleModel:
    """Choose how neighbours vote: the settings whose votes alone have the best nDCG@5."""
    model, k = stored.model, max(config.neighbours for config in KNN_CONFIGS)
    knn, lexical = stored.retrievers.get("knn"), stored.retrievers.get("lexical_knn")
    chosen, floor = {"knn": model.knn, "lexical_knn": model.lexical_knn}, model.similarity_floor
    for name, retriever in (("knn", knn), ("lexical_knn", lexical)):
        if isinstance(retriever, Knn | LexicalKnn):
            near = retriever.nearest(validation.queries, snapshot, k)
            if name == "knn":
                floor = similarity_floor(near)
            chosen[name] = _best_config(near, validation, snapshot)
    return EnsembleModel(
        model.variants,
        chosen["knn"],
        chosen["lexical_knn"],
        model.propensity,
        model.model,
        model.fitted_on,
        floor,
    )


def _best_config(near: TopK, validation: Validation, snapshot: Snapshot) -> KnnConfig:
    values = []
    for config in KNN_CONFIGS:
        votes = snapshot.examples.votes(
            near,
            snapshot.n_labels,
            neighbours=config.neighbours,
            temperature=config.temperature,
        )
        top = TopK(*top_k_of_rows(votes, 10))
        values.append(validation.judge(top, ("nDCG@5",))["nDCG@5"])
    return KNN_CONFIGS[int(np.argmax(values))]


def _text_scores(
    retrievers: dict[str, Retriever],
    validation: Validation,
    snapshot: Snapshot,
    found: Candidates,
) -> dict[str, torch.Tensor]:
    """Score candidates as if their labels had been added after training, by their text."""
    lexical = retrievers.get("lexical_ranker")
    if not isinstance(lexical, LexicalRetriever):
        return {}
    titles = snapshot.labels.titles
    terms = lexical.ranker.vectorizer.transform(validation.queries.texts)
    rows = found.rows.cpu().numpy()
    used, places = np.unique(np.maximum(rows, 0), return_inverse=True)
    labels = lexical.ranker.vectorizer.transform([titles[row] for row in used.tolist()])
    cosines = look_up(product(terms, sp.csr_matrix(labels.T)), places.reshape(rows.shape))
    scores = torch.from_numpy(np.float32(SCALE) * np.asarray(cosines))
    return {"lexical_ranker": scores.to(found.rows.device)}


def _validation(
    predictor: Predictor, dataset: Dataset, propensity: Propensity
) -> Validation | None:
    """Encode the validation texts; None where no text with labels was held out."""
    if "validation" not in dataset:
        return None
    split = dataset["validation"]
    truth = split.filtered_targets()
    if not truth.nnz:
        return None
    texts = split.texts(predictor.reading.text)
    return Validation(
        split,
        Queries(texts, predictor.vectors(texts)),
        truth,
        dataset.label_counts,
        len(dataset["train"]),
        predictor.propensity or propensity,
    )


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
        "prior weights: too few texts to hold any out",
        -np.inf,
    )


def _comparable(predictor: Predictor, examples: TrainedExamples) -> torch.Tensor:
    vectors = torch.from_numpy(np.asarray(examples.vectors)).to(predictor.encoder.device)
    return vectors if predictor.model.normalize else torch.nn.functional.normalize(vectors, dim=1)


def _report(model: EnsembleModel, folder: RunFolder, seconds: float, log: Log) -> None:
    best = model.variants[0]
    size = sum(f.stat().st_size for f in folder.ensemble.rglob("*") if f.is_file())
    log(
        f"Ensemble of {', '.join(best.scorers)}: {seconds:.0f} s, "
        f"{size / 2**20:.1f} MiB in {folder.ensemble}"
    )
    error = best.validation.get("ECE")
    if error is not None:
        log(f"Calibration error on validation texts: {error:.2f} points")
        if error > MAX_CALIBRATION_ERROR:
            log(
                f"Warning: probabilities are off by {error:.1f} points on average; "
                "check them before you use a threshold"
            )
    if not best.converged:
        log("Warning: a fit of the ensemble did not converge; its probabilities may be off")


def _in_words(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {values[name]:.2f}" for name in METRICS)


def _fitted(folder: RunFolder) -> bool:
    file = folder.ensemble / "ensemble.json"
    if not file.is_file():
        return False
    value = read_json(file, error=RunError)
    return isinstance(value, dict) and value.get("model") == folder.model("best").name
