"""The path of ``POST /v1/predict`` past the web framework, whose routing costs more than the rest.

The framework's own route of the same address describes it in the OpenAPI document.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from umpteen.serving.access import caller_of
from umpteen.serving.engine import Engine
from umpteen.serving.errors import Refused, invalid_sentence
from umpteen.serving.routes_predict import PATH, respond
from umpteen.serving.wire import PredictRequest

ROUTE = SimpleNamespace(path=PATH)


class DirectPredict:
    """ASGI middleware that answers predictions itself; inside ``Guard``.

    Args:
        app: The application for everything else.
        engine: Predicts.
    """

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
