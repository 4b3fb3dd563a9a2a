"""``/v1/memory``: corrected examples that count from the next answer on."""

from __future__ import annotations

from fastapi import APIRouter, Request

from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.routes_labels import CHANGE_BREAKS
from umpteen.serving.wire import MemoryRequest, MemoryResponse

router = APIRouter(tags=["memory"], responses=BREAKS)


@router.post("/v1/memory", response_model=MemoryResponse, responses=CHANGE_BREAKS)
async def remember(body: MemoryRequest, request: Request) -> MemoryResponse:
    """Remember texts with their right labels; a text sent again replaces what was said of it."""
    engine: Engine = request.app.state.engine
    most = engine.options.most_texts
    if len(body.examples) > most:
        raise Refused(413, f"{len(body.examples)} examples were sent; at most {most} at once")
    texts = [example.text for example in body.examples]
    labels = [list(example.labels) for example in body.examples]
    count, remembered = await engine.remember(texts, labels)
    return MemoryResponse(changed=count, remembered=remembered)
