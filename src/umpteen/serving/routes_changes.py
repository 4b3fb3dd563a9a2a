"""``/v1/changes``: the audit trail."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS
from umpteen.serving.routes_predict import version_of
from umpteen.serving.schemas import ErrorResponse, ModelName, as_json

router = APIRouter(tags=["changes"], responses={**BREAKS, 404: {"model": ErrorResponse}})


class AuditedChange(BaseModel):
    """A change that was granted."""

    revision: int
    time: str = Field(description="UTC, ISO 8601.")
    kind: str = Field(description="add_labels, retire, restore, add_examples or repair.")
    count: int = Field(description="Labels or examples that it changed.")
    who: str = Field(description="The key, the address of a client without a key, or a command.")


class ChangesResponse(BaseModel):
    """The last changes, newest first."""

    changes: list[AuditedChange]


@router.get("/v1/changes", response_model=ChangesResponse)
async def changes(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    model: ModelName | None = None,
) -> Response:
    """Return who changed what and when; needs the scope ``change`` where there are keys."""
    engine: Engine = request.app.state.engine
    trail = await asyncio.to_thread(version_of(engine, model).store.audit_trail, limit)
    return as_json({"changes": [asdict(entry) for entry in reversed(trail)]})
