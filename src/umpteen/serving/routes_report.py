"""``/v1/report``: the training history and the ensemble, from small files of the run."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from umpteen.errors import RunError
from umpteen.metrics.bins import frequency_bins
from umpteen.report.history import History, loss_curve, read_history
from umpteen.report.overview import duration, standing
from umpteen.run_folder import RunFolder
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS
from umpteen.serving.routes_predict import version_of
from umpteen.serving.schemas import ErrorResponse, ModelName, as_json
from umpteen.serving.served_model import ServedModel

router = APIRouter(tags=["about"], responses={**BREAKS, 404: {"model": ErrorResponse}})
N_EXAMPLES, MAX_CHARACTERS = 3, 160
MAX_VALIDATIONS = 200


class LossCurveResponse(BaseModel):
    """Training loss by step, thinned for drawing."""

    steps: list[float]
    low: list[float]
    high: list[float]
    smooth: list[float]


class ValidationResponse(BaseModel):
    """Metric values of each head after an epoch, percent."""

    epoch: int
    heads: dict[str, dict[str, float]]


class EnsembleVariant(BaseModel):
    """A combination of scorers."""

    scorers: list[str]
    validation: dict[str, float] = Field(description="Metrics on validation texts, percent.")
    contributions: dict[str, float] = Field(
        description="By scorer, its share of what separates the first label from others, percent."
    )


class FrequencyBin(BaseModel):
    """Labels of about the same frequency; each bin has a fifth of all training pairs."""

    min: int
    max: int
    labels: int


class ReportResponse(BaseModel):
    """Figures of the page; what a run lacks is empty."""

    standing: str
    model_epoch: int | None = Field(description="Epoch of the served model.")
    select: str | None = Field(description="The metric that chose it.")
    loss: LossCurveResponse | None
    validations: list[ValidationResponse]
    ensemble: list[EnsembleVariant] = Field(description="The first is the default.")
    bins: list[FrequencyBin] = Field(description="Head to tail.")
    examples: list[str] = Field(description="Some texts to try.")
    facts: dict[str, str]


@router.get("/v1/report", response_model=ReportResponse)
async def report(request: Request, model: ModelName | None = None) -> Response:
    """Return learning curves, validation metrics, the ensemble, label frequencies and facts."""
    engine: Engine = request.app.state.engine
    version = version_of(engine, model)
    return as_json(await asyncio.to_thread(read_report, version))


def read_report(version: ServedModel) -> dict[str, Any]:
    """Collect what ``/v1/report`` returns, as JSON values."""
    folder = RunFolder(version.folder)
    try:
        history: History | None = read_history(folder)
    except (RunError, OSError):  # a page without curves is better than none
        history = None
    ensemble = version.predictor.ensemble
    variants = () if ensemble is None else ensemble.variants
    return {
        "standing": standing(history) if history is not None else "",
        "model_epoch": history.model_epoch if history is not None else None,
        "select": history.select if history is not None else None,
        "loss": _loss(history),
        "validations": [
            {"epoch": entry.epoch, "heads": entry.heads}
            for entry in (history.validations if history is not None else [])[-MAX_VALIDATIONS:]
        ],
        "ensemble": [
            {
                "scorers": list(variant.scorers),
                "validation": variant.validation,
                "contributions": variant.contributions,
            }
            for variant in variants
        ],
        "bins": frequency_ranges(np.asarray(version.predictor.label_counts)),
        "examples": _examples(folder),
        "facts": _facts(history, version),
    }


def frequency_ranges(counts: NDArray[np.int64]) -> list[dict[str, int]]:
    """Compute five bins with equal numbers of training pairs, head to tail.

    Example:
        >>> [(bin["max"], bin["labels"]) for bin in frequency_ranges(np.array([5, 3, 1, 1, 0]))]
        [(5, 1), (3, 1), (1, 3)]
    """
    places = frequency_bins(counts)
    ranges = []
    for place in np.unique(places).tolist():
        own = counts[places == place]
        ranges.append({"min": int(own.min()), "max": int(own.max()), "labels": len(own)})
    return ranges


def _loss(history: History | None) -> dict[str, list[float]] | None:
    if history is None or history.steps is None or not len(history.steps.steps):
        return None
    curve = loss_curve(history.steps)
    return {
        name: np.round(getattr(curve, name), 6).tolist()
        for name in ("steps", "low", "high", "smooth")
    }


def _examples(folder: RunFolder) -> list[str]:
    """Read the first short texts that the run keeps."""
    found = []
    try:
        with folder.examples.open("rb") as file:
            for line in itertools.islice(file, 50):
                text = json.loads(line)["text"]
                if isinstance(text, str) and len(text) <= MAX_CHARACTERS and text not in found:
                    found.append(text)
                if len(found) == N_EXAMPLES:
                    break
    except (OSError, ValueError, KeyError, TypeError):
        return found
    return found


def _facts(history: History | None, version: ServedModel) -> dict[str, str]:
    facts = {"Labels in training": f"{len(version.predictor.labels):,}"}
    if history is None:
        return facts
    settings, data = history.about.get("config", {}), history.about.get("data", {})
    about = {
        "Data": data.get("name"),
        "Encoder": settings.get("encoder", {}).get("name"),
        "Heads": ", ".join(settings.get("model", {}).get("heads", [])),
        "Text read": settings.get("data", {}).get("text"),
        "Epochs": f"{history.reached} of {history.planned}",
        "Device": history.about.get("device"),
        "Trained with": f"umpteen {history.about.get('umpteen', '')}",
    }
    facts |= {name: str(value) for name, value in about.items() if value}
    if history.steps is not None and len(history.steps.steps):
        facts["Steps"] = f"{int(history.steps.steps[-1]):,}"
        facts["Time in training"] = duration(history.steps.seconds)
    return facts
