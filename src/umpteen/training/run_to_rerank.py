"""A run with what its re-ranker is fitted to, and how it is fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError
from umpteen.predictor import Predictor
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.storage import StoredEnsemble, load_ensemble
from umpteen.ranking.variant_fitting import ValidationCandidates
from umpteen.run_folder import RunFolder
from umpteen.training.cross_validation import FOLDS
from umpteen.training.ensemble_validation import Judge, judge_of
from umpteen.training.prepare import training_splits, with_configured_propensity
from umpteen.training.rerank_pairs import PairOptions
from umpteen.training.retrieved import Retrieved, retrieve
from umpteen.training.same_labels import require_same_labels


class TooFewTexts(ConfigError):
    """A gain of re-ranking cannot be measured."""


@dataclass(frozen=True)
class RerankOptions:
    """What is fitted."""

    kind: str = "features"
    encoder: str | None = None
    """Folder or name of the transformer, for a kind that has one."""
    candidates: int = 50
    folds: int | None = None
    """Models of folds, to train the network on their texts; 0 trains it on validation texts,
    cross-fitted. By default 1, or 0 for a transformer with enough validation texts."""
    epochs: int | None = None
    """Of the network, by default 5 to 40, fewer with more texts."""
    pairs: PairOptions = PairOptions()
    """How a transformer is trained; its seed is that of the run."""
    keep: str = "auto"
    """``auto`` where validation shows a gain, ``always``, or ``never``."""


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
    judge: Judge | None
    """Of validation texts; None where there are too few."""

    @property
    def judge_of_folds(self) -> Judge:
        """A judge without texts, with the counts of the training texts."""
        train = self.dataset["train"]
        about, none = self.predictor.propensity, train.select(np.arange(0))
        return Judge(none, self.dataset.label_counts, len(train), about or self.dataset.propensity)


def load_run(folder: RunFolder, data: Dataset, settings: RunConfig, device: str) -> RunToRerank:
    """Load a run and the texts that its ensemble was fitted on.

    Raises:
        ConfigError: If it has no ensemble.
        TooFewTexts: If no gain could be measured.
    """
    dataset = training_splits(with_configured_propensity(data, settings), settings)
    predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
    require_same_labels(predictor, data, folder)
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
    if judge is None or _labelled(judge.truth) < least:
        judge = None
        if _labelled(dataset["train"].filtered_targets()) < FOLDS * least:
            raise TooFewTexts(
                f"{folder.path} has too few texts to measure a gain of re-ranking; it takes "
                f"{least} validation texts, or {FOLDS * least} training texts"
            )
    return RunToRerank(folder, settings, dataset, predictor, stored, model, judge)


def _labelled(truth: sp.csr_matrix) -> int:
    return int(np.count_nonzero(np.diff(truth.indptr)))


def without_reranking(model: EnsembleModel) -> EnsembleModel:
    """Return the ensemble without a re-ranked variant."""
    plain = tuple(variant for variant in model.variants if variant.reranking is None)
    return replace(model, variants=plain)


def judged_texts(run: RunToRerank, apart: Retrieved | None) -> Retrieved:
    """Return the texts that metrics are measured on: validation, else those of folds."""
    if run.judge is not None:
        return retrieve(run.predictor, run.stored, run.model, run.judge)
    assert apart is not None
    return apart


def candidates_of(run: RunToRerank, own: Retrieved) -> ValidationCandidates:
    """Return judged texts as variants are fitted to them."""
    truth, n = own.judge.truth, len(own.judge.split)
    return ValidationCandidates(
        own.found, own.positive, truth, own.judge.label_counts, run.model.propensity, own.judge,
        own.text_scores, truth.nnz / max(1, n), run.settings.seed,
    )  # fmt: skip
