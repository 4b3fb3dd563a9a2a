"""``/v1/predict``: check a request against the limits, then queue it.

``DirectPredict`` answers past the web framework, whose routing costs more than the rest. The
framework's own route of the same address describes it in the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from umpteen.predictor import DEFAULT_K_ABOVE
from umpteen.serving.access import Caller, caller_of
from umpteen.serving.answering import Found, PredictionJob
from umpteen.serving.costs import check_cost
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused, invalid_sentence
from umpteen.serving.options import Options
from umpteen.serving.schemas import ErrorResponse, PredictRequest, PredictResponse, to_json
from umpteen.serving.served_model import ServedModel

DEFAULT_K = 5
"""Labels of a text by default."""
PATH = "/v1/predict"
SMALL_ANSWER = 1000
"""Labels of an answer that is encoded on the event loop."""
router = APIRouter(
    tags=["predict"],
    responses={**BREAKS, **{code: {"model": ErrorResponse} for code in (404, 504)}},
)
ROUTE = SimpleNamespace(path=PATH)


@router.post(PATH, response_model=PredictResponse)
async def predict(body: PredictRequest, request: Request) -> Response:
    """Return the best labels of one or more texts."""
    content = await respond(body, request.app.state.engine, caller_of(request.scope))
    return Response(content, media_type="application/json")


async def respond(body: PredictRequest, engine: Engine, caller: Caller) -> bytes:
    """Return the body of the response to a request."""
    job = await check(body, engine)
    seconds = engine.options.deadline_seconds
    if body.deadline_ms is not None:
        seconds = min(seconds, body.deadline_ms / 1000)
    found = await engine.predict(job, seconds=seconds, client=caller.client)
    engine.metrics.add("texts_total", len(job.texts))
    if len(job.texts) * job.k <= SMALL_ANSWER:
        return encode(found)
    return await asyncio.to_thread(encode, found)


def encode(found: Found) -> bytes:
    """Return the body of a response; each text alone, so that other threads get their turn."""
    lines = b",".join(to_json(prediction) for prediction in _predictions(found))
    about = {
        "head": found.head,
        "name": found.name,
        "model": found.model,
        "revision": found.revision,
    }
    return b'{"predictions":[' + lines + b"]," + to_json(about)[1:]


def _predictions(found: Found) -> list[dict[str, Any]]:
    predictions: list[dict[str, Any]] = [{"labels": labels} for labels in found.labels]
    for prediction, note in zip(predictions, found.notes, strict=True):
        if note is not None:
            prediction["note"] = note
    for prediction, near in zip(predictions, found.neighbours or (), strict=False):
        prediction["neighbours"] = near
    return predictions


async def check(body: PredictRequest, engine: Engine) -> PredictionJob:
    """Return the job of a request that is within the limits.

    Raises:
        Refused: If it is not.
        ConfigError: If the model has no such head, or the head has no probabilities for a
            threshold.
    """
    options = engine.options
    version = version_of(engine, body.model)
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    _check_texts(texts, options)
    k = body.k
    if k is None:
        k = min(DEFAULT_K if body.threshold is None else DEFAULT_K_ABOVE, options.max_k)
    if k > options.max_k:
        raise Refused(422, f"k is {k}; at most {options.max_k} labels are returned")
    check_cost(texts, k, explain=body.explain, limit=options.max_cost)
    version.predictor.check_threshold(body.threshold, body.head)
    for name, ids in (("allow", body.allow), ("deny", body.deny)):
        if ids is not None:
            await check_ids(ids, name, engine, version)
    return PredictionJob(
        texts=texts,
        k=k,
        head=body.head,
        threshold=body.threshold,
        allow=None if body.allow is None else tuple(dict.fromkeys(body.allow)),
        deny=tuple(dict.fromkeys(body.deny or ())),
        explain=body.explain,
        version=version,
    )


def version_of(engine: Engine, name: str | None) -> ServedModel:
    """Return the model that a request names, the active one for None.

    Raises:
        Refused: If there is no such model.
    """
    version = engine.models.get(name)
    if version is None:
        raise Refused(404, f"no model has the name {name!r:.80}; see /v1/models")
    return version


def _check_texts(texts: Sequence[str], options: Options) -> None:
    if not texts:
        raise Refused(422, "texts is empty; send at least one")
    if len(texts) > options.max_texts:
        raise Refused(
            413, f"{len(texts)} texts were sent; at most {options.max_texts} go in one request"
        )
    longest = max(map(len, texts))
    if longest > options.max_characters:
        raise Refused(
            413,
            f"a text has {longest} characters; at most {options.max_characters} are read, so "
            "send its beginning",
        )
    for position, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Refused(
                422,
                f"texts[{position}] contains a lone surrogate at character {error.start + 1}, "
                "which is not valid Unicode; remove it",
            ) from None


async def check_ids(
    ids: Sequence[str], name: str, engine: Engine, version: ServedModel, *, status: int = 422
) -> None:
    """Raise unless all ids are those of labels, and not too many.

    Args:
        ids: The ids.
        name: The field they were sent in, for the message.
        engine: Has the limits.
        version: Has the labels.
        status: The HTTP status for an unknown label.

    Raises:
        Refused: If one is unknown, or there are too many.
    """
    limit = engine.options.max_ids
    if len(ids) > limit:
        raise Refused(413, f"{name} holds {len(ids)} ids; at most {limit} are read")
    state = await asyncio.to_thread(version.store.state)
    known = state.labels.rows
    unknown = next((label_id for label_id in ids if label_id not in known), None)
    if unknown is not None:
        raise Refused(status, f"{name}: no label has the id {unknown!r:.80}")


class DirectPredict:
    """ASGI middleware that answers predictions itself; inside ``Guard``."""

    def __init__(self, app: ASGIApp, *, engine: Engine) -> None:
        self._app, self._engine = app, engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for predictions, or pass it on."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = ROUTE
        message = await receive()
        body = parse(message.get("body", b""))
        content = await respond(body, self._engine, caller_of(scope))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode("ascii")),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def parse(body: bytes) -> PredictRequest:
    """Return the request in a body.

    Raises:
        Refused: If there is none.
    """
    try:
        value: Any = json.loads(body)
    except json.JSONDecodeError as error:
        raise Refused(422, f"not valid: {error.pos}: JSON decode error") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or too deep
        raise Refused(400, "the body is not JSON that can be read") from error
    try:
        return PredictRequest.model_validate(value)
    except ValidationError as error:
        places = [(each["loc"], each["msg"]) for each in error.errors(include_url=False)]
        raise Refused(422, invalid_sentence(places)) from error
