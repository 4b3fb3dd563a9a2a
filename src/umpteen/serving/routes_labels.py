"""``/v1/labels``: list, add, retire, restore."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from umpteen.errors import DataError
from umpteen.live.changes import NewLabel
from umpteen.live.listing import list_labels
from umpteen.serving.engine import Engine
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
    """A page of labels, by words and in an order."""
    engine: Engine = request.app.state.engine
    version = engine.version
    version.live.book.refresh()
    changes, counts = version.live.book.changes, version.predictor.label_counts
    page = await engine.aside(
        lambda: list_labels(
            changes,
            counts,
            search=search,
            changed=changed,
            order=order,
            offset=offset,
            limit=min(limit, engine.options.most_labels),
        )
    )
    return as_json(page.as_json())


@router.post("/v1/labels", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def add(body: AddRequest, request: Request) -> ChangeResponse:
    """Add labels, all or none; searchable in the next request."""
    engine: Engine = request.app.state.engine
    most = engine.options.most_labels
    if len(body.labels) > most:
        raise Refused(413, f"{len(body.labels)} labels were sent; at most {most} at once")
    new = [NewLabel(label.id, label.text, label.content).check() for label in body.labels]
    try:
        count, revision = await engine.change("add", lambda live: live.add(new))
    except DataError as error:  # checked above, so it is about labels that are there
        raise Refused(409, str(error)) from error
    return ChangeResponse(changed=count, revision=revision)


@router.delete("/v1/labels", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def delete(
    request: Request, id: Annotated[list[Id], Query(description="A label; may be repeated.")]
) -> ChangeResponse:
    """Retire labels, all or none: gone from every answer at once. Their ids are not given again."""
    return await _move(request, id, "retire")


@router.post("/v1/labels/retire", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def retire(body: IdsRequest, request: Request) -> ChangeResponse:
    """The same as DELETE, for more labels than fit into an address."""
    return await _move(request, body.ids, "retire")


@router.post("/v1/labels/restore", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def restore(body: IdsRequest, request: Request) -> ChangeResponse:
    """Undo retire, for all or none."""
    return await _move(request, body.ids, "restore")


async def _move(request: Request, ids: list[str], what: str) -> ChangeResponse:
    engine: Engine = request.app.state.engine
    check_ids(ids, "ids", engine, status=404)
    count, revision = await engine.change(
        what, lambda live: live.retire(ids) if what == "retire" else live.restore(ids)
    )
    return ChangeResponse(changed=count, revision=revision)
