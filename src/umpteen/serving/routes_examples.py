"""``/v1/examples``: labelled texts that count from the next prediction on."""

from __future__ import annotations

from fastapi import APIRouter, Request

from umpteen.serving.access import caller_of
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.routes_labels import CHANGE_BREAKS
from umpteen.serving.routes_predict import version_of
from umpteen.serving.schemas import ChangeResponse, ExamplesRequest, ModelName

router = APIRouter(tags=["examples"], responses=BREAKS)


@router.post("/v1/examples", response_model=ChangeResponse, responses=CHANGE_BREAKS)
async def add(
    body: ExamplesRequest, request: Request, model: ModelName | None = None
) -> ChangeResponse:
    """Store texts with their right labels, all or none; a text sent again gets the new labels."""
    engine: Engine = request.app.state.engine
    limit = engine.options.max_texts
    if len(body.examples) > limit:
        raise Refused(413, f"{len(body.examples)} examples were sent; at most {limit} at once")
    texts = [example.text for example in body.examples]
    labels = [list(example.labels) for example in body.examples]
    version, who = version_of(engine, model), caller_of(request.scope).who
    count, revision = await engine.change(
        "add_examples",
        lambda store: store.add_examples(texts, labels, who=who),
        size=len(texts),
        version=version,
    )
    return ChangeResponse(changed=count, revision=revision)
