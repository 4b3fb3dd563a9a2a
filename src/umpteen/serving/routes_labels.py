"""``/v1/labels``: list, add, retire, restore."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from umpteen.errors import DataError
from umpteen.serving.access import caller_of
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.routes_predict import check_ids, version_of
from umpteen.serving.schemas import (
    AddRequest,
    ChangeResponse,
    ErrorResponse,
    Id,
    IdsRequest,
    LabelsResponse,
    ModelName,
    as_json,
)
from umpteen.store import ChangeStore, NewLabel
from umpteen.store.listing import list_labels

CHANGE_BREAKS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse} for code in (404, 409, 503)
}
router = APIRouter(tags=["labels"], responses=BREAKS)


@router.get("/v1/labels", response_model=LabelsResponse, responses={404: {"model": ErrorResponse}})
async def labels(
    request: Request,
    search: Annotated[str, Query(max_length=200)] = "",
    changed: bool = False,
    order: Literal["row", "frequent", "rare"] = "row",
    offset: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    model: ModelName | None = None,
) -> Response:
    """Return one page of labels."""
    engine: Engine = request.app.state.engine
    version = version_of(engine, model)
    page = await asyncio.to_thread(
        lambda: list_labels(
            version.store.state(),
            version.predictor.label_counts,
            search=search,
            changed=changed,
            order=order,
            offset=offset,
            limit=min(limit, engine.options.max_labels),
        )
    )
    return as_json(page.as_json())


@router.post("/v1/labels", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def add(body: AddRequest, request: Request, model: ModelName | None = None) -> ChangeResponse:
    """Add labels, all or none; the next request can return them."""
    engine: Engine = request.app.state.engine
    version, who = version_of(engine, model), caller_of(request.scope).who
    limit = engine.options.max_labels
    if len(body.labels) > limit:
        raise Refused(413, f"{len(body.labels)} labels were sent; at most {limit} at once")
    new = [NewLabel(label.id, label.text, label.content).check() for label in body.labels]
    try:
        count, revision = await engine.change(
            "add_labels",
            lambda store: store.add_labels(new, who=who),
            size=len(new),
            version=version,
        )
    except DataError as error:  # fields were checked above: an id is taken or retired
        raise Refused(409, str(error)) from error
    return ChangeResponse(changed=count, revision=revision)


@router.delete("/v1/labels", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def delete(
    request: Request,
    id: Annotated[list[Id], Query(description="A label; may be repeated.")],
    model: ModelName | None = None,
) -> ChangeResponse:
    """Retire labels, all or none: no prediction returns them. Their ids are never used again."""
    return await _move(request, id, "retire", model)


@router.post("/v1/labels/retire", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def retire(
    body: IdsRequest, request: Request, model: ModelName | None = None
) -> ChangeResponse:
    """Do the same as DELETE, for more labels than fit into an address."""
    return await _move(request, body.ids, "retire", model)


@router.post("/v1/labels/restore", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def restore(
    body: IdsRequest, request: Request, model: ModelName | None = None
) -> ChangeResponse:
    """Undo retire, for all or none."""
    return await _move(request, body.ids, "restore", model)


async def _move(request: Request, ids: list[str], kind: str, model: str | None) -> ChangeResponse:
    engine: Engine = request.app.state.engine
    version, who = version_of(engine, model), caller_of(request.scope).who
    await check_ids(ids, "ids", engine, version, status=404)

    def make(store: ChangeStore) -> int:
        move = store.retire_labels if kind == "retire" else store.restore_labels
        return move(ids, who=who)

    count, revision = await engine.change(kind, make, size=len(ids), version=version)
    return ChangeResponse(changed=count, revision=revision)
