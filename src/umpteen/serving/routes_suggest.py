"""``/v1/suggest``: which of some texts to label next."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from umpteen.head_names import ENSEMBLE
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.schemas import Strict
from umpteen.suggestions import Suggestion, suggest

router = APIRouter(tags=["predict"], responses=BREAKS)
_one_at_a_time = asyncio.Lock()


class SuggestRequest(Strict):
    """Texts without labels."""

    texts: list[str] = Field(min_length=1, examples=[["some text", "another text"]])
    n: int = Field(20, ge=1, description="Texts to choose at most.")


class SuggestedLabel(BaseModel):
    """A label of a suggested text."""

    id: str
    text: str
    score: float
    predicted: bool = Field(description="Whether the probability reaches the threshold.")


class SuggestedText(BaseModel):
    """A text to label."""

    position: int = Field(description="Place among the texts of the request, from 0.")
    text: str
    gain: float = Field(
        description="Expected wrong and missing labels that a correction may remove, in this "
        "text and in similar ones."
    )
    expected_errors: float = Field(
        description="Expected wrong and missing labels of this text alone."
    )
    labels: list[SuggestedLabel]


class SuggestResponse(BaseModel):
    """The texts to label next, the most useful first."""

    suggestions: list[SuggestedText]


@router.post("/v1/suggest", response_model=SuggestResponse)
async def choose(body: SuggestRequest, request: Request) -> dict[str, Any]:
    """Choose the texts to label next, by what a correction is expected to change."""
    engine: Engine = request.app.state.engine
    options = engine.options
    if len(body.texts) > options.max_texts:
        raise Refused(
            413, f"{len(body.texts)} texts were sent; at most {options.max_texts} go in one request"
        )
    longest = max(map(len, body.texts))
    if longest > options.max_characters:
        raise Refused(
            413, f"a text has {longest} characters; at most {options.max_characters} are read"
        )
    if ENSEMBLE not in engine.version.predictor.heads:
        raise Refused(422, "suggestions need probabilities, and this model has no ensemble")
    async with _one_at_a_time:  # predictions of others go on beside it
        found = await asyncio.to_thread(suggest, engine.version.predictor, body.texts, body.n)
    return {"suggestions": [_as_json(each) for each in found]}


def _as_json(found: Suggestion) -> dict[str, Any]:
    return {
        "position": found.position,
        "text": found.text,
        "gain": round(found.gain, 4),
        "expected_errors": round(found.expected_errors, 4),
        "labels": found.labels,
    }
