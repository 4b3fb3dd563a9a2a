"""Information about the run, health, metrics, and the files of the page."""

from __future__ import annotations

import asyncio
import os
from importlib.resources import files
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from umpteen import __version__
from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.run_folder import RunFolder
from umpteen.serving.costs import CHARACTERS_PER_UNIT, EXPLAINED_LABELS_PER_UNIT, LABELS_PER_UNIT
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.metrics import CONTENT_TYPE
from umpteen.serving.options import Options
from umpteen.serving.routes_predict import version_of
from umpteen.serving.schemas import EnsembleInfo, ErrorResponse, InfoResponse, ModelName
from umpteen.serving.served_model import ServedModel

AS_JSON: dict[int | str, dict[str, Any]] = {
    code: {
        "description": about["description"],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}},
    }
    for code, about in BREAKS.items()
}
"""Errors of a route whose other answers are no JSON."""

router = APIRouter(tags=["about"])
MAY_MISS: dict[int | str, dict[str, Any]] = {**BREAKS, 404: {"model": ErrorResponse}}
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE = {
    place.name: place.read_bytes()
    for place in files("umpteen.serving").joinpath("web").iterdir()
    if place.name.rpartition(".")[2] in KINDS
}
"""The page's files, read once: no request ever opens a path."""


@router.get("/v1/info", response_model=InfoResponse, responses=MAY_MISS)
async def info(request: Request, model: ModelName | None = None) -> InfoResponse:
    """Return the run, its heads and labels, the ensemble, limits and validation metrics."""
    engine: Engine = request.app.state.engine
    may_change = request.app.state.access.possible("change")
    version = version_of(engine, model)
    return await asyncio.to_thread(read_info, engine.options, version, may_change=may_change)


def read_info(options: Options, version: ServedModel, *, may_change: bool) -> InfoResponse:
    """Collect what ``/v1/info`` returns."""
    predictor, snapshot = version.predictor, version.predictor.snapshot()
    retired = 0 if snapshot.allowed is None else int((~snapshot.allowed).sum())
    limits = {
        name: getattr(options, name)
        for name in (
            "max_texts", "max_characters", "max_k", "max_cost", "max_ids", "max_labels",
            "max_body_bytes", "max_waiting_changes",
        )
    }  # fmt: skip
    costs = {
        "labels_per_unit": LABELS_PER_UNIT,
        "explained_labels_per_unit": EXPLAINED_LABELS_PER_UNIT,
        "characters_per_unit": CHARACTERS_PER_UNIT,
    }
    return InfoResponse(
        umpteen=__version__,
        name=version.name,
        run=version.folder.name,
        model=version.model,
        heads=list(predictor.heads),
        default_head=predictor.heads[-1],
        n_labels=snapshot.n_labels - retired,
        n_added=snapshot.n_labels - snapshot.n_trained,
        n_retired=retired,
        n_examples=len(snapshot.examples),
        revision=snapshot.revision,
        ensemble=_ensemble(version),
        changes=_why_no_changes(version, may_change=may_change),
        limits={**limits, **costs, "deadline_ms": int(1000 * options.deadline_seconds)},
        frequencies=_frequencies(version),
        history=_history(version),
        report=(version.folder / "report.html").is_file(),
    )


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=dict[str, str])
async def health() -> dict[str, str]:
    """Return 200 while the process responds."""
    return {"status": "alive"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=dict[str, str], responses={503: {"model": ErrorResponse}})
async def ready(request: Request) -> dict[str, str]:
    """Return 200 while predictions and changes are possible, otherwise 503 with the reason."""
    engine: Engine = request.app.state.engine
    if engine.draining:
        raise Refused(503, "the service is about to stop")
    problem = await asyncio.to_thread(engine.version.problem)
    if problem is not None:
        raise Refused(503, problem)
    return {"status": "ready", "model": engine.version.model}


@router.get("/metrics", response_class=PlainTextResponse, responses=AS_JSON)
async def metrics(request: Request) -> PlainTextResponse:
    """Return metrics in the Prometheus text format."""
    engine: Engine = request.app.state.engine
    return PlainTextResponse(
        await asyncio.to_thread(engine.metrics.render), media_type=CONTENT_TYPE
    )


@router.get("/report", include_in_schema=False)
async def report(request: Request) -> Response:
    """Return the report that ``umpteen report`` has written."""
    engine: Engine = request.app.state.engine
    try:
        page = (engine.version.folder / "report.html").read_bytes()
    except OSError:
        raise Refused(404, "there is no report; write one with: umpteen report") from None
    # It brings a policy of its own that names its one style sheet by digest.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return Response(page, media_type=KINDS["html"], headers={"Content-Security-Policy": policy})


@router.head("/", include_in_schema=False)
@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the page."""
    return _file("index.html")


@router.get("/web/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    """Return a file of the page."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in PAGE:
        raise Refused(404, "there is nothing here")
    headers = {"Cache-Control": "no-cache"}
    return Response(PAGE[name], media_type=KINDS[name.rpartition(".")[2]], headers=headers)


def _ensemble(version: ServedModel) -> EnsembleInfo | None:
    ensemble = version.predictor.ensemble
    if ensemble is None:
        return None
    variant = ensemble.variant()
    return EnsembleInfo(
        scorers=list(variant.scorers),
        calibration_error=variant.validation.get("ECE"),
        threshold=variant.calibration.threshold,
        group_thresholds=list(variant.calibration.group_thresholds),
        fitted_on=ensemble.fitted_on,
        reranking=None if variant.reranking is None else variant.reranking.in_words,
    )


def _why_no_changes(version: ServedModel, *, may_change: bool) -> str:
    if version.store.damage is not None:
        return "the store of changes is damaged; repair it with: umpteen repair"
    if not may_change:
        return "the service was started without a token for changes"
    if not os.access(version.folder, os.W_OK):
        return "the run folder cannot be written to"
    return ""


def _frequencies(version: ServedModel) -> list[dict[str, Any]]:
    """Count the labels with 0, 1, 2 to 3, 4 to 7, ... training texts."""
    counts = np.asarray(version.predictor.label_counts)
    place = np.where(counts > 0, np.floor(np.log2(np.maximum(counts, 1))).astype(int) + 1, 0)
    labels = np.bincount(place)
    texts = np.bincount(place, weights=counts).astype(int)
    return [
        {
            "min": 0 if n == 0 else 2 ** (n - 1),
            "max": 0 if n == 0 else 2**n - 1,
            "labels": int(labels[n]),
            "texts": int(texts[n]),
        }
        for n in range(len(labels))
    ]


def _history(version: ServedModel) -> list[dict[str, Any]]:
    """Read the validation metrics of the last epochs."""
    try:
        written = read_json(RunFolder(version.folder).metrics, error=RunError)
    except RunError:
        return []
    entries = written.get("validation", []) if isinstance(written, dict) else []
    return [entry for entry in entries if isinstance(entry, dict)][-200:]
