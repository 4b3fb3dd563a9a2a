"""The ensemble of a run that starts from another one: its weights, and settings of its folds."""

from __future__ import annotations

from dataclasses import replace

from umpteen.config.known_datasets import lay_over
from umpteen.config.schema import RunConfig
from umpteen.config.settings import from_mapping, to_json
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.storage import StoredEnsemble
from umpteen.run_folder import RunFolder
from umpteen.training.warm_start import WarmStart

UNFITTED = "nothing"
"""Begins what the ensemble says it was fitted on, where it has prior weights."""


def carried_weights(folder: RunFolder, stored: StoredEnsemble) -> EnsembleModel | None:
    """Return the weights of the run that training started from, if they were fitted and fit.

    For a cross-validation models would have to be trained from nothing, as long as that run.
    """
    file = folder.origin / "ensemble.json"
    if not file.is_file():
        return None
    before, own = EnsembleModel.load(file), stored.model
    used = {name for variant in before.variants for name in variant.retrievers}
    if before.fitted_on.startswith(UNFITTED) or used != set(stored.retrievers):
        return None
    return replace(
        before, model=own.model, propensity=own.propensity, similarity_floor=own.similarity_floor
    )


def as_first_trained(folder: RunFolder, settings: RunConfig) -> RunConfig:
    """Return settings with the whole schedule, for models that do not start from another run."""
    start = WarmStart.of(folder)
    if start is None:
        return settings
    return from_mapping(lay_over(to_json(settings), start.schedule), source=str(folder.config))
