"""``/v1/labels``: list, add, retire, restore."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from umpteen.errors import DataError
from umpteen.serving.engine import WHO, Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.routes_predict import check_ids
from umpteen.serving.wire import (
    AddRequest,
    ChangeResponse,
    ErrorResponse,
    Id,
    IdsRequest,
    LabelsResponse,
    as_json,
)
from umpteen.store import NewLabel
from umpteen.store.listing import list_labels

CHANGE_BREAKS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse} for code in (404, 409, 503)
}
router = APIRouter(tags=["labels"], responses=BREAKS)


@router.get("/v1/labels", response_model=LabelsResponse)
async def labels(
    request: Request,
    search: Annotated[str, Query(max_length=200)] = "",
    changed: bool = False,
    order: Literal["row", "frequent", "rare"] = "row",
    offset: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """Return one page of labels."""
    engine: Engine = request.app.state.engine
    version = engine.version
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
async def add(body: AddRequest, request: Request) -> ChangeResponse:
    """Add labels, all or none; the next request can return them."""
    engine: Engine = request.app.state.engine
    limit = engine.options.max_labels
    if len(body.labels) > limit:
        raise Refused(413, f"{len(body.labels)} labels were sent; at most {limit} at once")
    new = [NewLabel(label.id, label.text, label.content).check() for label in body.labels]
    try:
        count, revision = await engine.change(
            "add_labels", lambda store: store.add_labels(new, who=WHO)
        )
    except DataError as error:  # fields were checked above: an id is taken or retired
        raise Refused(409, str(error)) from error
    return ChangeResponse(changed=count, revision=revision)


@router.delete("/v1/labels", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def delete(
    request: Request, id: Annotated[list[Id], Query(description="A label; may be repeated.")]
) -> ChangeResponse:
    """Retire labels, all or none: no prediction returns them. Their ids are never used again."""
    return await _move(request, id, "retire")


@router.post("/v1/labels/retire", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def retire(body: IdsRequest, request: Request) -> ChangeResponse:
    """Do the same as DELETE, for more labels than fit into an address."""
    return await _move(request, body.ids, "retire")


@router.post("/v1/labels/restore", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def restore(body: IdsRequest, request: Request) -> ChangeResponse:
    """Undo retire, for all or none."""
    return await _move(request, body.ids, "restore")


async def _move(request: Request, ids: list[str], kind: str) -> ChangeResponse:
    engine: Engine = request.app.state.engine
    await check_ids(ids, "ids", engine, status=404)
    count, revision = await engine.change(
        kind,
        lambda store: (store.retire_labels if kind == "retire" else store.restore_labels)(
            ids, who=WHO
        ),
    )
    return ChangeResponse(changed=count, revision=revision)
