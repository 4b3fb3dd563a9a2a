"""The application: routes around an engine. ``create_app`` for whoever brings a server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

from umpteen import __version__
from umpteen.serving import (
    annif,
    errors,
    routes_about,
    routes_changes,
    routes_examples,
    routes_labels,
    routes_models,
    routes_predict,
    routes_report,
    routes_suggest,
)
from umpteen.serving.access import Access
from umpteen.serving.connections import Connections
from umpteen.serving.engine import Engine
from umpteen.serving.metrics import ServiceMetrics, build_info, resident_bytes, unique_bytes
from umpteen.serving.middleware import OPEN, RequestMiddleware
from umpteen.serving.options import Options
from umpteen.serving.routes_predict import DirectPredict
from umpteen.serving.tracing import Tracer

ROUTES = (
    routes_predict,
    routes_labels,
    routes_examples,
    routes_suggest,
    routes_changes,
    routes_models,
    routes_about,
    routes_report,
)


class Service(FastAPI):
    """An application whose middleware and predictions come before the framework's own layers."""

    guarded: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the start and end of the application."""
        await self.guarded(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; health needs no token."""
        document = super().openapi()
        for path in OPEN:
            for operation in document["paths"].get(path, {}).values():
                operation.pop("security", None)
        return document

    async def unguarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what the middleware lets through."""
        await super().__call__(scope, receive, send)


def create_app(options: Options, connections: Connections | None = None) -> FastAPI:
    """Return an ASGI application that serves a run.

    Args:
        options: Which run, and how.
        connections: Of the server, where it limits them.

    Returns:
        The application, with its model loaded.

    Raises:
        RunError: If there is no whole run.
        ConfigError: If a token cannot be read.
    """
    access = Access(options)
    tracer = Tracer() if options.otel else None
    metrics = ServiceMetrics(options.shared)
    engine = Engine(options, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.stop()
        if tracer is not None:
            tracer.close()

    guarded = [Depends(HTTPBearer(auto_error=False))] if access.configured else []
    app = Service(
        title="umpteen",
        version=__version__,
        summary="The few right labels out of umpteen for a piece of text.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        dependencies=guarded,
    )
    app.state.engine, app.state.access = engine, access
    for part in ROUTES:
        app.include_router(part.router)
    if options.annif is not None:
        app.include_router(annif.project_routes(options.annif))
    errors.install(app)
    app.guarded = RequestMiddleware(
        DirectPredict(app.unguarded, engine=engine),
        options=options,
        metrics=metrics,
        access=access,
        connections=connections,
        tracer=tracer,
    )
    _show(metrics, engine)
    if connections is not None:
        connections.count = lambda reason: metrics.add("connections_closed_total", reason=reason)
        metrics.gauge("connections", "Open connections.", lambda: len(connections))
    return app


def _show(metrics: ServiceMetrics, engine: Engine) -> None:
    """Add the gauges; each is read when the metrics are."""
    state = lambda: engine.version.store.state()  # noqa: E731 - the version may be swapped
    metrics.gauge("queue_texts", "Work in the queue, in units of a text.", lambda: engine.waiting)
    metrics.gauge("queue_changes", "Changes that wait or are made.", lambda: engine.changes.waiting)
    metrics.gauge("labels", "Labels that can be predicted.",
                 lambda: state().n_labels - len(state().retired_rows))  # fmt: skip
    metrics.gauge("examples_added", "Examples added since training.",
                 lambda: len(state().examples))  # fmt: skip
    metrics.gauge("store_revision", "Changes of labels and examples granted so far.",
                 lambda: engine.version.store.revision)  # fmt: skip
    metrics.gauge("store_damaged", "1 while the store is damaged and changes are refused.",
                 lambda: float(engine.version.store.damage is not None))  # fmt: skip
    metrics.gauge("watcher_alive", "1 while the run folders are watched for new versions.",
                 lambda: float(engine.watching))  # fmt: skip
    metrics.gauge("watcher_age_seconds", "Time since the run folders were last looked at.",
                 lambda: time.monotonic() - engine.models.checked)  # fmt: skip
    metrics.gauge("watcher_failures", "Loads that failed since the last one that did not.",
                 lambda: engine.models.failures)  # fmt: skip
    metrics.gauge("resident_bytes", "Memory of the worker that answered.", resident_bytes)
    metrics.gauge("unique_bytes", "Memory of that worker that it shares with no other process.",
                 unique_bytes)  # fmt: skip
    metrics.info("build_info", "Versions of the software.", lambda: [build_info()])
    metrics.info("model_info", "Models that are served.", lambda: [
        {name: str(each.get(name, "")) for name in ("name", "run", "model", "state")}
        for each in engine.models.listing() if each["state"] != "available"
    ])  # fmt: skip
