"""``/v1/examples``: labelled texts that count from the next prediction on."""

from __future__ import annotations

from fastapi import APIRouter, Request

from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.routes_labels import CHANGE_BREAKS
from umpteen.serving.wire import ChangeResponse, ExamplesRequest

router = APIRouter(tags=["examples"], responses=BREAKS)


@router.post("/v1/examples", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def add(body: ExamplesRequest, request: Request) -> ChangeResponse:
    """Store texts with their right labels, all or none; a text sent again gets the new labels."""
    engine: Engine = request.app.state.engine
    limit = engine.options.max_texts
    if len(body.examples) > limit:
        raise Refused(413, f"{len(body.examples)} examples were sent; at most {limit} at once")
    texts = [example.text for example in body.examples]
    labels = [list(example.labels) for example in body.examples]
    count, revision = await engine.add_examples(texts, labels)
    return ChangeResponse(changed=count, revision=revision)
