"""``/v1/predict``: check a request against the limits, then queue it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from umpteen.serving.answering import Found, Question
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.options import Options
from umpteen.serving.wire import ErrorResponse, PredictRequest, PredictResponse, as_json

router = APIRouter(tags=["predict"], responses={**BREAKS, 504: {"model": ErrorResponse}})


@router.post("/v1/predict", response_model=PredictResponse)
async def predict(body: PredictRequest, request: Request) -> Response:
    """Return the best labels of one or more texts."""
    engine: Engine = request.app.state.engine
    question = await check(body, engine)
    seconds = engine.options.deadline_seconds
    if body.deadline_ms is not None:
        seconds = min(seconds, body.deadline_ms / 1000)
    found = await engine.predict(question, seconds=seconds)
    engine.metrics.add("texts_total", len(question.texts))
    about = {"head": found.head, "model": found.model, "revision": found.revision}
    return as_json({"predictions": _predictions(found), **about})


def _predictions(found: Found) -> list[dict[str, Any]]:
    predictions: list[dict[str, Any]] = [{"labels": labels} for labels in found.labels]
    for prediction, note in zip(predictions, found.notes, strict=True):
        if note is not None:
            prediction["note"] = note
    for prediction, near in zip(predictions, found.neighbours or (), strict=False):
        prediction["neighbours"] = near
    return predictions


async def check(body: PredictRequest, engine: Engine) -> Question:
    """Return the question of a request that is within the limits.

    Raises:
        Refused: If it is not.
        ConfigError: If the model has no such head, or the head has no probabilities for a
            threshold.
    """
    options, predictor = engine.options, engine.version.predictor
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    _check_texts(texts, options)
    if body.k > options.max_k:
        raise Refused(422, f"k is {body.k}; at most {options.max_k} labels are returned")
    predictor.check_threshold(body.threshold, body.head)
    for name, ids in (("allow", body.allow), ("deny", body.deny)):
        if ids is not None:
            await check_ids(ids, name, engine)
    return Question(
        texts=texts,
        k=body.k,
        head=body.head,
        threshold=body.threshold,
        allow=None if body.allow is None else tuple(dict.fromkeys(body.allow)),
        deny=tuple(dict.fromkeys(body.deny or ())),
        explain=body.explain,
    )


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


async def check_ids(ids: Sequence[str], name: str, engine: Engine, *, status: int = 422) -> None:
    """Raise unless all ids are those of labels, and not too many.

    Args:
        ids: The ids.
        name: The field they were sent in, for the message.
        engine: Has the labels.
        status: The HTTP status for an unknown label.

    Raises:
        Refused: If one is unknown, or there are too many.
    """
    limit = engine.options.max_ids
    if len(ids) > limit:
        raise Refused(413, f"{name} holds {len(ids)} ids; at most {limit} are read")
    state = await asyncio.to_thread(engine.version.store.state)
    known = state.labels.rows
    unknown = next((label_id for label_id in ids if label_id not in known), None)
    if unknown is not None:
        raise Refused(status, f"{name}: no label has the id {unknown!r:.80}")
