"""``/v1/models``: which runs are served; load, activate, roll back and unload them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from umpteen.errors import ConfigError, RunError
from umpteen.serving.access import caller_of
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.schemas import ErrorResponse, ModelName, Strict

logger = logging.getLogger("umpteen.serving")
MODEL_BREAKS: dict[int | str, dict[str, Any]] = {409: {"model": ErrorResponse}}
router = APIRouter(tags=["models"], responses=BREAKS)


class ModelEntry(BaseModel):
    """A run that is served, or could be."""

    name: str
    run: str = Field(description="The name of its folder.")
    state: Literal["active", "loaded", "available"] = Field(
        description="active: gets requests that name no model; available: can be loaded."
    )
    model: str | None = Field(None, description="The model of the run.")
    previous: bool = Field(False, description="Whether a roll back activates it.")
    labels: int | None = Field(None, description="Labels it can predict, added ones too.")
    revision: int | None = Field(None, description="Changes granted so far.")
    loaded: str | None = Field(None, description="When it was loaded, UTC.")
    problem: str | None = Field(None, description="Why it should get no traffic.")


class ModelsResponse(BaseModel):
    """All models."""

    active: str
    models: list[ModelEntry]
    workers_behind: int = Field(description="Workers that do not serve this yet.")


class LoadRequest(Strict):
    """A run to load."""

    name: ModelName = Field(description="A folder in the folder of --runs.")


class ActivateRequest(Strict):
    """A loaded model to activate."""

    name: ModelName
    carry_changes: bool = Field(
        False, description="Apply changes of labels and examples of the active model to it first."
    )


@router.get("/v1/models", response_model=ModelsResponse)
async def models(request: Request) -> ModelsResponse:
    """Return the served models and those that can be loaded."""
    return await _state(request.app.state.engine)


@router.post("/v1/models", response_model=ModelsResponse, responses=MODEL_BREAKS)
async def load(body: LoadRequest, request: Request) -> ModelsResponse:
    """Load a run beside the active one. Requests can name it; all workers load it."""
    engine: Engine = request.app.state.engine
    try:
        await engine.models.load(body.name)
    except (ConfigError, RunError) as error:
        raise Refused(409, _without_paths(error, engine)) from error
    return await _done(request, "model loaded", body.name)


@router.put("/v1/models/active", response_model=ModelsResponse, responses=MODEL_BREAKS)
async def activate(body: ActivateRequest, request: Request) -> ModelsResponse:
    """Give requests that name no model to this one. No request fails or waits."""
    engine: Engine = request.app.state.engine
    who = caller_of(request.scope).who
    try:
        async with engine.changes.turn(1):  # no change is made between carrying and swapping
            await engine.models.activate(body.name, carry=body.carry_changes, who=who)
    except ConfigError as error:
        raise Refused(409, str(error)) from error
    return await _done(request, "model activated by a request", body.name)


@router.post("/v1/models/rollback", response_model=ModelsResponse, responses=MODEL_BREAKS)
async def roll_back(request: Request) -> ModelsResponse:
    """Activate the model that was active before."""
    engine: Engine = request.app.state.engine
    try:
        await engine.models.roll_back()
    except ConfigError as error:
        raise Refused(409, str(error)) from error
    return await _done(request, "model rolled back", engine.version.name)


@router.delete("/v1/models/{name}", response_model=ModelsResponse, responses=MODEL_BREAKS)
async def unload(name: str, request: Request) -> ModelsResponse:
    """Unload a model that is not active; its folder stays."""
    engine: Engine = request.app.state.engine
    try:
        await engine.models.unload(name)
    except ConfigError as error:
        raise Refused(409, str(error)) from error
    return await _done(request, "model unloaded", name)


async def _done(request: Request, event: str, name: str) -> ModelsResponse:
    fields = {"model": name, "who": caller_of(request.scope).who}
    logger.info(event, extra={"fields": fields})
    return await _state(request.app.state.engine)


async def _state(engine: Engine) -> ModelsResponse:
    listed = await asyncio.to_thread(engine.models.listing)
    return ModelsResponse(
        active=engine.version.name,
        models=[ModelEntry(**each) for each in listed],
        workers_behind=engine.models.control.behind(),
    )


def _without_paths(error: Exception, engine: Engine) -> str:
    folder = engine.options.folder
    return str(error) if folder is None else str(error).replace(f"{folder.rstrip('/')}/", "")
