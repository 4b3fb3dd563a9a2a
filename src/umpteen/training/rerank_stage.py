"""The re-ranking stage as users call it: at the end of a training, or for a run that is there."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from umpteen.config.schema import RunConfig
from umpteen.config.settings import from_mapping
from umpteen.data.as_dataset import as_dataset
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError, RunError
from umpteen.files import disk_errors, read_json, write_json
from umpteen.predictor import Predictor
from umpteen.ranking.reranking.spec import PAIR_SCORERS
from umpteen.ranking.variants import VARIANT_METRICS
from umpteen.run_folder import RunFolder
from umpteen.training.rerank import RerankOutcome, rerank_run
from umpteen.training.rerank_pairs import PairOptions
from umpteen.training.run_to_rerank import RerankOptions, TooFewTexts
from umpteen.training.stage_log import log_table
from umpteen.training.warm_start import with_changes_taken_over
from umpteen.types import Log

TABLE = (*VARIANT_METRICS, "ECE", "micro-F1")
"""The metrics that are shown."""


def rerank(
    run: str | Path | Predictor,
    data: Any,
    *,
    kind: str = "features",
    encoder: str | None = None,
    candidates: int = 50,
    folds: int | None = None,
    epochs: int | None = None,
    seconds: float | None = None,
    keep: str = "auto",
    device: str = "auto",
    log: Log | None = None,
) -> RerankOutcome:
    """Fit a stage that scores the best labels of a run again, and use it where it gains.

    Args:
        run: A run folder, or a predictor of one, which then uses the stage.
        data: What the run was trained on: a path, a ``Dataset``, a table, or a function that reads
            it.
        kind: ``features``, ``late-interaction`` or ``cross-encoder``.
        encoder: The transformer, for a kind that has one; by default that of the run.
        candidates: Labels of a text that are scored again, at most.
        folds: Models to train, each without a fifth of the texts, which the re-ranker learns from.
        epochs: Of the transformer; without one, of the network over the features.
        seconds: The time that training the transformer may take.
        keep: ``auto`` where validation shows a gain, ``always``, or ``never``.
        device: ``auto``, ``cpu`` or ``cuda``.
        log: Receives progress lines; by default the logger ``umpteen.training``.

    Returns:
        Metrics without and with the stage, the decision, and whether it is used.

    Raises:
        ConfigError: If the run has no ensemble or too few texts, or an option is wrong.

    Example:
        >>> outcome = umpteen.rerank("run", "data")  # doctest: +SKIP
        >>> outcome.used, outcome.decision.gain  # doctest: +SKIP
    """
    place = run.folder if isinstance(run, Predictor) else run
    if place is None:
        raise ConfigError("the model is in no run folder; save it first")
    folder = RunFolder(place).require()
    settings = from_mapping(folder.read_settings(to_build=True), source=str(folder.config))
    options = RerankOptions(
        kind, _encoder(kind, encoder, settings), candidates, folds,
        epochs if kind == "features" else None,
        PairOptions(epochs=epochs, seconds=math.inf if seconds is None else seconds), keep,
    )  # fmt: skip
    dataset = data() if callable(data) else as_dataset(data)
    dataset = with_changes_taken_over(folder, dataset, settings.data.text)
    say = logging.getLogger("umpteen.training").info if log is None else log
    with disk_errors(folder.ensemble, advice="fit it again"):
        found = rerank_run(folder, dataset, settings, options, device=device, log=say)
        if keep != "never":
            _write_outcome(folder, options, found)
    if found.used and isinstance(run, Predictor):
        run.use_ensemble(found.ensemble)
    return found


def rerank_after_training(
    folder: RunFolder,
    data: Dataset,
    settings: RunConfig,
    *,
    device: str,
    log: Log,
    cache: Path | None = None,
) -> None:
    """Fit the stage that the settings of a run name, unless that was done.

    Args:
        folder: The run, with its ensemble.
        data: What it was trained on, with the changes that it took over.
        settings: The run's.
        device: Where to train.
        log: Receives progress lines.
        cache: Where token stores are kept.
    """
    wanted = settings.rerank
    if wanted.kind == "none" or _is_done(folder, settings):
        return
    encoder = settings.pair_encoder if wanted.kind in PAIR_SCORERS else None
    options = RerankOptions(wanted.kind, encoder, wanted.candidates)
    try:
        found = rerank_run(folder, data, settings, options, device=device, log=log, cache=cache)
    except TooFewTexts as error:
        log(f"Warning: no re-ranking: {error}")
        return
    _write_outcome(folder, options, found)
    rows = {"ensemble": found.before.validation, "re-ranked": found.after.validation}
    log_table(rows, VARIANT_METRICS, "validation texts", log)
    decision, spec = found.decision, found.after.reranking
    assert spec is not None
    log(
        f"Re-ranking {'is used' if found.used else 'is not used'}: gain {decision.gain:+.2f} "
        f"points on {decision.n_texts:,} texts (p {decision.p_value:.3g}); {spec.in_words}"
    )


def _encoder(kind: str, encoder: str | None, settings: RunConfig) -> str | None:
    """Return the transformer of a re-ranker; None for features.

    Raises:
        ConfigError: If one is missing, or is named for features.
    """
    if kind not in PAIR_SCORERS:
        if encoder is not None:
            kinds = " or ".join(PAIR_SCORERS)
            raise ConfigError(f"--encoder FOLDER belongs to --kind {kinds}; leave it out")
        return None
    encoder = encoder or settings.pair_encoder
    if encoder is None:
        raise ConfigError(
            f"the run's encoder is {settings.encoder.name}, no transformer; name one for "
            f"{kind} with --encoder FOLDER"
        )
    return encoder


def _outcome_file(folder: RunFolder) -> Path:
    return folder.ensemble / "reranking.json"


def _write_outcome(folder: RunFolder, options: RerankOptions, found: RerankOutcome) -> None:
    """Keep what was found, for the report and for a training that is resumed."""
    value = {
        "model": folder.model("best").name,
        "kind": options.kind,
        "encoder": options.encoder,
        "candidates": options.candidates,
        "used": found.used,
        "before": {name: found.before.validation[name] for name in TABLE},
        "after": {name: found.after.validation[name] for name in TABLE},
        "decision": asdict(found.decision),
    }
    write_json(_outcome_file(folder), value)


def _is_done(folder: RunFolder, settings: RunConfig) -> bool:
    """Return whether the stage of these settings was fitted to the present model."""
    file = _outcome_file(folder)
    if not file.is_file():
        return False
    value = read_json(file, error=RunError)
    wanted = settings.rerank
    found = [value.get(key) for key in ("model", "kind", "candidates")]
    return found == [folder.model("best").name, wanted.kind, wanted.candidates]
