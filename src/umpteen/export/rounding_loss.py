"""What rounding costs: metrics of an exported network beside those of the model on validation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from umpteen.data.dataset import Dataset, hold_out_validation
from umpteen.evaluation import evaluate
from umpteen.model.exported_encoder import ExportedEncoder
from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder

METRICS = ("P@1", "P@5")
UNSEEN_SHARE = 0.1
"""Of train, where the run held nothing out; rounding is measured as well on trained texts."""
MAX_LOSS = 0.2
"""Points of a metric on validation that int8 may lose."""


def rounding_loss(predictor: Predictor, folder: Path, backend: str, data: Dataset) -> float:
    """Return the points that the exported network loses at most, over heads and metrics.

    Args:
        predictor: The model, loaded from a run folder.
        folder: The exported network.
        backend: Which one.
        data: With a validation split, or with the train split of the run.

    Returns:
        Points (0 to 100); below 0 where it gains.

    Raises:
        DataError: If the data has neither split.
    """
    if "validation" not in data and predictor.folder is not None:
        settings = RunFolder(predictor.folder).read_settings()
        held = settings.get("validation", {})
        data = hold_out_validation(
            data,
            share=held.get("share") or UNSEEN_SHARE,
            max_queries=held.get("max_queries") or len(data["train"]),
            seed=settings.get("seed", 0),
        )
    whole = predictor.encoder
    found = []
    for encoder in (whole, ExportedEncoder(whole, folder, backend)):
        predictor.encoder = encoder
        try:
            report = evaluate(predictor, data, split="validation", metrics=METRICS)
        finally:
            predictor.encoder = whole
        found.append(np.array([[h.values[m] for m in METRICS] for h in report.heads.values()]))
    return float((found[0] - found[1]).max())
