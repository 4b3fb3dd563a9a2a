"""What is served, whether it is well, and its counts; and the page's files."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from umpteen import __version__
from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.runs import RunFolder
from umpteen.serving.engine import Engine, Version
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.wire import ErrorResponse, InfoResponse

router = APIRouter(tags=["about"])
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


@router.get("/v1/info", response_model=InfoResponse, responses=BREAKS)
async def info(request: Request) -> InfoResponse:
    """The run, its heads and labels, its limits and how its training went."""
    engine: Engine = request.app.state.engine
    version, options = engine.version, engine.options
    book = version.live.book
    book.refresh()
    limits = {
        name: getattr(options, name)
        for name in ("most_texts", "most_characters", "most_k", "most_ids", "most_labels")
    }
    return InfoResponse(
        umpteen=__version__,
        run=version.folder.name,
        model=version.model,
        heads=list(version.predictor.heads),
        default_head=version.predictor.heads[-1],
        n_labels=len(book.changes) - len(book.changes.retired),
        n_added=len(book.changes.added),
        n_retired=len(book.changes.retired),
        revision=book.journal.revision,
        changes=_why_no_changes(request, engine),
        limits={**limits, "deadline_ms": int(1000 * options.deadline_seconds)},
        frequencies=_frequencies(version),
        history=_history(version),
        remembered=_remembered(version),
        report=(version.folder / "report.html").is_file(),
    )


@router.get("/healthz", response_model=dict[str, str])
async def health() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "alive"}


@router.get("/readyz", response_model=dict[str, str], responses={503: {"model": ErrorResponse}})
async def ready(request: Request) -> dict[str, str]:
    """Whether requests are taken."""
    engine: Engine = request.app.state.engine
    if engine.draining:
        raise Refused(503, "the service is about to stop")
    return {"status": "ready", "model": engine.version.model}


@router.get("/metrics", response_class=PlainTextResponse, responses=BREAKS)
async def metrics(request: Request) -> PlainTextResponse:
    """Counts in the Prometheus text format."""
    engine: Engine = request.app.state.engine
    return PlainTextResponse(
        engine.meters.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )


@router.get("/report", include_in_schema=False)
async def report(request: Request) -> Response:
    """The run's own report, where ``umpteen report`` has written one."""
    engine: Engine = request.app.state.engine
    try:
        page = (engine.version.folder / "report.html").read_bytes()
    except OSError:
        raise Refused(404, "there is no report; write one with: umpteen report") from None
    # It brings a policy of its own that names its one style sheet by digest.
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return Response(page, media_type=KINDS["html"], headers={"Content-Security-Policy": policy})


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """The page."""
    return _file("index.html")


@router.get("/web/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    """A file of the page."""
    return _file(name)


def _file(name: str) -> Response:
    if name not in PAGE:
        raise Refused(404, "there is nothing here")
    headers = {"Cache-Control": "no-cache"}
    return Response(PAGE[name], media_type=KINDS[name.rpartition(".")[2]], headers=headers)


def _why_no_changes(request: Request, engine: Engine) -> str:
    if engine.version.live.book.damage:
        return "the list of label changes is damaged; changes wait for its repair"
    if request.app.state.change_token is None and not engine.options.on_loopback:
        return "the service was started without a token for changes"
    if not os.access(engine.version.folder, os.W_OK):
        return "the run folder cannot be written to"
    return ""


def _remembered(version: Version) -> int:
    ensemble = version.predictor.ensemble
    remembered = None if ensemble is None else ensemble.views.remembered
    return -1 if remembered is None else len(remembered)


def _frequencies(version: Version) -> list[dict[str, Any]]:
    """How many labels have 0, 1, 2 to 3, 4 to 7, ... training texts."""
    counts = np.asarray(version.predictor.label_counts)
    place = np.where(counts > 0, np.floor(np.log2(np.maximum(counts, 1))).astype(int) + 1, 0)
    labels = np.bincount(place)
    texts = np.bincount(place, weights=counts).astype(int)
    return [
        {
            "least": 0 if n == 0 else 2 ** (n - 1),
            "most": 0 if n == 0 else 2**n - 1,
            "labels": int(labels[n]),
            "texts": int(texts[n]),
        }
        for n in range(len(labels))
    ]


def _history(version: Version) -> list[dict[str, Any]]:
    """What validation said after each of the last epochs."""
    try:
        written = read_json(RunFolder(version.folder).metrics, error=RunError)
    except RunError:
        return []
    entries = written.get("validation", []) if isinstance(written, dict) else []
    return [entry for entry in entries if isinstance(entry, dict)][-200:]
