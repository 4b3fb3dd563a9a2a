"""Cross-validate the ensemble of small data: one model a fold, trained on the other folds."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.predictor import Predictor
from umpteen.ranking.storage import StoredEnsemble
from umpteen.run_folder import RunFolder
from umpteen.training.ensemble_validation import Collected, Judge, collect, joined
from umpteen.training.fit_time import FitTime
from umpteen.training.session import Session

FOLDS = 5
MIN_TEXTS = 20
"""Below this many labelled texts nothing is cross-validated: prior weights are used."""

Used = TypeVar("Used")
FitFold = Callable[[RunFolder, Predictor, Dataset], tuple[Predictor, StoredEnsemble]]


def cross_validate(
    dataset: Dataset,
    settings: RunConfig,
    *,
    cache: Path,
    device: str,
    limit: FitTime,
    fit_fold: FitFold,
    log: Callable[[str], None],
    fold_seconds: float = 0.0,
) -> tuple[Collected, Judge] | None:
    """Collect candidates of training texts from models that were not trained on them.

    Args:
        dataset: With a train split and no validation split.
        settings: The run's.
        cache: Where token stores are kept.
        device: Where to train.
        limit: No further fold is started when it would end after it.
        fit_fold: From a run folder, its predictor and the fold's data to the predictor with
            retrievers and the stored ensemble.
        log: Called with progress lines.
        fold_seconds: How long the first fold will take.

    Returns:
        Candidates and the texts they belong to; None where there are too few texts or no time.
    """
    train = dataset["train"]
    labelled = np.flatnonzero(np.diff(train.filtered_targets().indptr))
    if len(labelled) < MIN_TEXTS:
        return None
    settings = fold_settings(settings)
    order = np.random.default_rng([settings.seed, 0xF01D]).permutation(labelled)
    if not limit.allows(fold_seconds):
        log(
            f"Cross-validation left out: a fold takes about {fold_seconds:.0f} s and "
            f"{limit.left():.0f} s are left; the ensemble has prior weights"
        )
        return None
    log(f"Cross-validating the ensemble on {len(labelled):,} texts in {FOLDS} folds")
    parts: list[Collected] = []
    rows: list[NDArray[np.int64]] = []
    started = time.monotonic()
    for fold in range(FOLDS):
        each = (time.monotonic() - started) / max(1, fold)
        if fold and not limit.allows(each):
            log(f"No time for more than {fold} of {FOLDS} folds: each takes about {each:.0f} s")
            break
        own = np.sort(order[fold::FOLDS])
        parts.append(
            run_fold(
                dataset, own, settings, cache=cache, device=device, fit_fold=fit_fold, use=collect
            )
        )
        rows.append(own)
    chosen = train.select(np.concatenate(rows))
    judge = Judge(chosen, dataset.label_counts, len(train), dataset.propensity)
    return joined(parts), judge


def fold_settings(settings: RunConfig) -> RunConfig:
    """Return the settings of the model of a fold: nothing is held out, no ensemble is fitted."""
    return dataclasses.replace(
        settings,
        validation=dataclasses.replace(settings.validation, share=0.0),
        ensemble=dataclasses.replace(settings.ensemble, enabled="off"),
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
    """Train on all texts but a fold's, and use the result with the fold's texts.

    Args:
        dataset: With a train split.
        own: Rows of the fold's texts.
        settings: From ``fold_settings``.
        cache: Where token stores are kept.
        device: Where to train.
        fit_fold: As in ``cross_validate``.
        use: Called with the predictor, its ensemble and the fold's texts.

    Returns:
        What ``use`` returns.
    """
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
