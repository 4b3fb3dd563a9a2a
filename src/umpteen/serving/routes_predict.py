"""``/v1/predict``: checks against the operator's limits, then the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from umpteen.serving.answering import Question
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.options import Options
from umpteen.serving.wire import ErrorResponse, PredictRequest, PredictResponse, as_json

router = APIRouter(tags=["predict"], responses={**BREAKS, 504: {"model": ErrorResponse}})


@router.post("/v1/predict", response_model=PredictResponse)
async def predict(body: PredictRequest, request: Request) -> Response:
    """The best labels of one or more texts."""
    engine: Engine = request.app.state.engine
    question = check(body, engine)
    seconds = engine.options.deadline_seconds
    if body.deadline_ms is not None:
        seconds = min(seconds, body.deadline_ms / 1000)
    found = await engine.predict(question, seconds=seconds)
    engine.meters.add("texts_total", len(question.texts))
    predictions: list[dict[str, Any]] = [{"labels": labels} for labels in found.labels]
    for prediction, near in zip(predictions, found.neighbours or (), strict=False):
        prediction["neighbours"] = near
    about = {"head": question.head, "model": found.model, "revision": found.revision}
    return as_json({"predictions": predictions, **about})


def check(body: PredictRequest, engine: Engine) -> Question:
    """The question of a request, if it is within the limits.

    Raises:
        Refused: If it is not.
        ConfigError: If there is no such head.
    """
    options, predictor = engine.options, engine.version.predictor
    texts = [body.texts] if isinstance(body.texts, str) else body.texts
    _check_texts(texts, options)
    if body.k > options.most_k:
        raise Refused(422, f"k is {body.k}; at most {options.most_k} labels are returned")
    predictor.columns(body.head)
    for name, ids in (("allow", body.allow), ("deny", body.deny)):
        if ids is not None:
            check_ids(ids, name, engine)
    return Question(
        texts=texts,
        k=body.k,
        head=body.head or predictor.heads[-1],
        threshold=body.threshold,
        allow=None if body.allow is None else tuple(dict.fromkeys(body.allow)),
        deny=tuple(dict.fromkeys(body.deny or ())),
        explain=body.explain,
    )


def _check_texts(texts: Sequence[str], options: Options) -> None:
    if not texts:
        raise Refused(422, "texts is empty; send at least one")
    if len(texts) > options.most_texts:
        raise Refused(
            413, f"{len(texts)} texts were sent; at most {options.most_texts} go in one request"
        )
    longest = max(map(len, texts))
    if longest > options.most_characters:
        raise Refused(
            413,
            f"a text has {longest} characters; at most {options.most_characters} are read, so "
            "send its beginning",
        )


def check_ids(ids: Sequence[str], name: str, engine: Engine, *, status: int = 422) -> None:
    """Raise unless all ids are those of labels, and not too many.

    Args:
        ids: The ids.
        name: What they are for, for the message.
        engine: Knows the labels.
        status: To answer with for an unknown label.

    Raises:
        Refused: If one is unknown, or there are too many.
    """
    most = engine.options.most_ids
    if len(ids) > most:
        raise Refused(413, f"{name} holds {len(ids)} ids; at most {most} are read")
    engine.version.live.book.refresh()
    known = engine.version.live.book.changes
    unknown = next((label_id for label_id in ids if label_id not in known), None)
    if unknown is not None:
        raise Refused(status, f"{name}: no label has the id {unknown!r:.80}")
