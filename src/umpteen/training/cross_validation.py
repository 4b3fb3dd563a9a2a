"""Cross-validate the ensemble of small data: one model a fold, trained on the other folds."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from umpteen.config.schema import RerankConfig, RunConfig
from umpteen.data.dataset import Dataset, Split
from umpteen.predictor import Predictor
from umpteen.ranking.storage import StoredEnsemble
from umpteen.run_folder import RunFolder
from umpteen.training.ensemble_validation import (
    Collected,
    Judge,
    collect,
    join_splits,
    joined,
)
from umpteen.training.fit_time import FIT_SECONDS, VARIANTS, FitTime, folds_in_time
from umpteen.training.lost_labels import known_part, lost_labels
from umpteen.training.session import Session
from umpteen.training.warm_settings import MIN_TEXTS
from umpteen.types import TopK

FOLDS = 5
"""That the texts are divided into; ``ensemble.folds`` of them are used."""

Used = TypeVar("Used")
FitFold = Callable[[RunFolder, Predictor, Dataset], tuple[Predictor, StoredEnsemble]]
TimeFit = Callable[[Collected, Judge], float]


def cross_validate(
    dataset: Dataset,
    settings: RunConfig,
    *,
    cache: Path,
    device: str,
    limit: FitTime,
    fit_fold: FitFold,
    time_fit: TimeFit,
    log: Callable[[str], None],
    fold_seconds: float = 0.0,
) -> tuple[Collected, Judge] | None:
    """Collect candidates of training texts from models that were not trained on them.

    Args:
        dataset: With a train split and no validation split.
        settings: The run's.
        cache: Where token stores are kept.
        device: Where to train.
        limit: For the folds and the fit of their candidates; no fold is started that would leave
            too little time for the fit.
        fit_fold: From a run folder, its predictor and the fold's data to the predictor with
            retrievers and the stored ensemble.
        time_fit: Measures the seconds to fit one variant to a text.
        log: Called with progress lines.
        fold_seconds: How long the first fold will take.

    Returns:
        Candidates and the texts they belong to; None with fewer than ``MIN_TEXTS`` labelled texts,
        or no time.
    """
    folds = _divided(dataset["train"], settings)
    if not folds:
        return None
    plan = _FoldPlan(limit, len(folds[0]), fold_seconds, most := len(folds))
    if not plan.allows(0):
        log(f"Cross-validation left out: {plan.none()}; the ensemble has prior weights")
        return None
    n = sum(map(len, folds))
    log(f"Cross-validating the ensemble on {n:,} texts in up to {most} of {FOLDS} folds")
    parts, splits = list[Collected](), list[Split]()
    for fold, own in enumerate(folds):
        if not plan.allows(fold):
            log(f"No time for more than {fold} of {most} folds: {plan.left_out()}")
            break
        started = time.monotonic()
        part, texts = run_fold(
            dataset, own, fold_settings(settings), cache=cache, device=device, fit_fold=fit_fold,
            use=partial(_collect_known, counts=dataset.label_counts),
        )  # fmt: skip
        parts, splits = [*parts, part], [*splits, texts]
        plan.add(time.monotonic() - started)
        if limit.strict and not fold and len(texts):
            plan.fit = time_fit(part, _judge_of(dataset, splits))
    else:
        limit.left_out.append(f"all {most} folds of the ensemble")
    if any(len(texts) for texts in splits):
        return joined(parts), _judge_of(dataset, splits)
    log("No two texts share a label: nothing to cross-validate on")
    return None


def _divided(train: Split, settings: RunConfig) -> list[NDArray[np.int64]]:
    """Divide labelled texts at random; return the folds that are used, none of too few texts."""
    labelled = np.flatnonzero(np.diff(train.filtered_targets().indptr))
    if len(labelled) < MIN_TEXTS:
        return []
    order = np.random.default_rng([settings.seed, 0xF01D]).permutation(labelled)
    return [np.sort(order[fold::FOLDS]) for fold in range(settings.ensemble.folds)]


def _collect_known(
    predictor: Predictor, stored: StoredEnsemble, judge: Judge, *, counts: NDArray[np.int64]
) -> tuple[Collected, Split]:
    """Return the candidates of a fold and its texts, without lost labels.

    Args:
        predictor: The model of the fold.
        stored: Its ensemble.
        judge: Has the texts.
        counts: (L,) training texts of each label, those of the fold included.
    """
    found, texts = collect(predictor, stored, judge), judge.split
    lost = lost_labels(counts, judge.label_counts)
    part = known_part(texts, found.candidates, found.text_scores, lost)
    plain = TopK(found.plain.rows[part.rows], found.plain.scores[part.rows])
    made = dataclasses.replace(
        found, candidates=part.candidates, text_scores=part.text_scores, plain=plain
    )
    return made, part.split


def _judge_of(dataset: Dataset, splits: list[Split]) -> Judge:
    """Return who judges an ensemble by texts of train, each from a fold that left it out."""
    n, counts = len(dataset["train"]), dataset.label_counts
    return Judge(join_splits(splits), counts, n, dataset.propensity, cross_validated=True)


@dataclasses.dataclass
class _FoldPlan:
    """Decides before each fold whether there is time for it and for a fit to its texts."""

    limit: FitTime
    texts: int
    """Of a fold."""
    fold: float
    """Seconds of a fold, as measured so far."""
    most: int = FOLDS
    """Folds that are wanted."""
    spent: float = 0.0
    done: int = 0
    fit: float = FIT_SECONDS
    """Seconds to fit a variant to a text."""

    def allows(self, done: int) -> bool:
        """Return whether a further fold is due."""
        if not self.limit.strict:
            return True
        planned = folds_in_time(
            self.limit.left() + self.limit.slack,
            done=done,
            most=self.most,
            fold=self.fold,
            texts=self.texts,
            fit=self.fit,
            variants=VARIANTS,
        )
        return planned > done

    def add(self, seconds: float) -> None:
        """Take the time of a fold that is done into account."""
        self.spent, self.done = self.spent + seconds, self.done + 1
        self.fold = self.spent / self.done

    def left_out(self) -> str:
        """Return why no further fold is trained, and keep it with what there was no time for."""
        why = f"a further fold takes about {self.fold:.0f} s, and its fit"
        self.limit.left_out.append(why)
        return why

    def none(self) -> str:
        """Return why no fold is trained, and keep it with what there was no time for."""
        seconds = self.fold + self.texts * self.fit
        self.limit.left_out.append(f"a cross-validation takes at least {seconds:.0f} s")
        left = self.limit.left() + self.limit.slack
        return f"a fold and a fit to it take about {seconds:.0f} s and {left:.0f} s are left"


def fold_settings(settings: RunConfig) -> RunConfig:
    """Return the settings of the model of a fold: nothing is held out, no ensemble is fitted."""
    return dataclasses.replace(
        settings,
        validation=dataclasses.replace(settings.validation, share=0.0),
        ensemble=dataclasses.replace(settings.ensemble, enabled="off"),
        rerank=RerankConfig(),
    )


def run_fold(
    dataset: Dataset,
    own: NDArray[np.int64],
    settings: RunConfig,
    *,
    cache: Path,
    device: str,
    fit_fold: FitFold,
    use: Callable[[Predictor, StoredEnsemble, Judge], Used],
) -> Used:
    """Train on all texts but a fold's, and use the result with the fold's texts."""
    train = dataset["train"]
    rest = np.setdiff1d(np.arange(len(train)), own)
    data = dataclasses.replace(dataset, splits={"train": train.select(rest)})
    with tempfile.TemporaryDirectory(prefix="umpteen-fold-") as place:
        folder = RunFolder(Path(place) / "run")
        session = Session(folder, settings, device=device, reporters=[])
        session.set_up(data, resume=False, cache=cache)
        session.train()
        predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
        predictor, stored = fit_fold(folder, predictor, data)
        judge = Judge(train.select(own), data.label_counts, len(data["train"]), dataset.propensity)
        return use(predictor, stored, judge)
