"""The application: routes around an engine. ``create_app`` for whoever brings a server."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer

from umpteen import __version__
from umpteen.serving import (
    errors,
    routes_about,
    routes_examples,
    routes_labels,
    routes_predict,
    routes_report,
)
from umpteen.serving.engine import Engine
from umpteen.serving.guard import Guard
from umpteen.serving.metrics import ServiceMetrics, resident_bytes
from umpteen.serving.options import Options

ENVIRONMENT = "UMPTEEN_SERVE_OPTIONS"


def create_app(options: Options) -> FastAPI:
    """Return an ASGI application that serves a run.

    Args:
        options: Which run, and how.

    Returns:
        The application, with its model loaded.

    Raises:
        RunError: If there is no whole run.
        ConfigError: If a token cannot be read.
    """
    read_token, change_token = options.token("read"), options.token("change")
    metrics = ServiceMetrics(options.shared)
    engine = Engine(options, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.stop()

    guarded = [Depends(HTTPBearer(auto_error=False))] if read_token or change_token else []
    app = FastAPI(
        title="umpteen",
        version=__version__,
        summary="The few right labels out of umpteen for a piece of text.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        dependencies=guarded,
    )
    app.state.engine, app.state.change_token = engine, change_token
    for part in (routes_predict, routes_labels, routes_examples, routes_about, routes_report):
        app.include_router(part.router)
    errors.install(app)
    app.add_middleware(
        Guard, options=options, metrics=metrics, read_token=read_token, change_token=change_token
    )
    _show(metrics, engine)
    return app


def from_environment() -> FastAPI:
    """Return the application of a worker process."""
    from umpteen.serving.logs import set_up

    set_up()
    options = Options.from_json(os.environ[ENVIRONMENT])
    _share_cores(options.workers)
    return create_app(options)


def _show(metrics: ServiceMetrics, engine: Engine) -> None:
    """Add the gauges; each is read when the metrics are."""
    state = lambda: engine.version.store.state()  # noqa: E731 - the version may be swapped
    metrics.gauge("queue_texts", "Texts in the queue.", lambda: engine.waiting)
    metrics.gauge("labels", "Labels that can be predicted.",
                 lambda: state().n_labels - len(state().retired_rows))  # fmt: skip
    metrics.gauge("examples_added", "Examples added since training.",
                 lambda: len(state().examples))  # fmt: skip
    metrics.gauge("store_revision", "Changes of labels and examples granted so far.",
                 lambda: engine.version.store.revision)  # fmt: skip
    metrics.gauge("store_damaged", "1 while the store is damaged and changes are refused.",
                 lambda: float(engine.version.store.damage is not None))  # fmt: skip
    metrics.gauge("resident_bytes", "Memory of the worker that answered.", resident_bytes)


def _share_cores(workers: int) -> None:
    import torch

    share = max(1, len(os.sched_getaffinity(0)) // workers)
    torch.set_num_threads(min(share, torch.get_num_threads()))  # OMP_NUM_THREADS may ask for less
