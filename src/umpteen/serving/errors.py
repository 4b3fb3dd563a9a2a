"""From our errors to HTTP answers: a code, one sentence, and nothing of the machine in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from umpteen.errors import ConfigError, DataError, NotWritten, StoreDamaged, UmpteenError
from umpteen.serving.batching import DeadlinePassed, Overloaded
from umpteen.serving.schemas import ErrorResponse

logger = logging.getLogger("umpteen.serving")

CODES = {
    400: "bad_request",
    401: "token_needed",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    415: "not_json",
    422: "not_valid",
    429: "overloaded",
    431: "too_large",
    500: "failed",
    503: "cannot_change",
    504: "too_late",
}
BREAKS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse, "description": CODES[code].replace("_", " ")}
    for code in (400, 401, 403, 408, 413, 415, 422, 429, 431)
}
"""What any route may answer, for the OpenAPI document."""


class Refused(Exception):
    """A request that cannot be granted."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def fault(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as a response."""
    said = message.encode("utf-8", "replace").decode("utf-8")  # half a character cannot be sent
    body = {"error": {"code": CODES.get(status, "failed"), "message": said}}
    return JSONResponse(body, status, headers)


def translate(error: Exception) -> JSONResponse:
    """Return the response to an exception."""
    if isinstance(error, Refused):
        return fault(error.status, error.message, error.headers)
    if isinstance(error, Overloaded):
        return fault(
            429,
            f"more texts wait than can be answered; try again in {error.retry_after} s",
            {"Retry-After": str(error.retry_after)},
        )
    if isinstance(error, DeadlinePassed):
        return fault(504, "the deadline passed before there was an answer; ask again, or for less")
    if isinstance(error, NotWritten):
        why = getattr(error.__cause__, "strerror", None) or "the disk refused"
        logger.error("change not written", extra={"fields": {"why": str(error)}})
        return fault(503, f"the change could not be written ({why}), so nothing was changed")
    if isinstance(error, StoreDamaged):
        logger.error("store damaged", extra={"fields": {"why": str(error)}})
        return fault(
            503,
            "the store of changes is damaged, so nothing was changed; predictions go on, and "
            "changes too once the operator has repaired it",
        )
    if isinstance(error, ConfigError | DataError):
        return fault(422, str(error))
    logger.exception("request failed", exc_info=error)
    return fault(500, "the service failed on this request; its log says why")


def invalid_sentence(places: Sequence[tuple[Sequence[int | str], str]]) -> str:
    """Return what is wrong with a request: the first few places, without their values.

    Args:
        places: Each place and what is wrong there. A value may be long or private.
    """
    asked = [tuple(place) for place, _ in places]
    named = [f"{'.'.join(map(str, place)) or 'body'}: {wrong}" for place, wrong in places[:3]]
    wanted = '; send {"texts": ["some text"]}' if any(p == ("texts",) for p in asked) else ""
    return f"not valid: {'; '.join(named)}"[:500] + wanted


def _methods(app: FastAPI, path: str) -> set[str]:
    """Return the methods of all routes with a path, as the OpenAPI document lists them."""
    found, paths = set(), app.openapi()["paths"]
    for template, methods in ({path: paths[path]} if path in paths else paths).items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path):
            found |= {method.upper() for method in methods}
    return found | ({"HEAD"} if path in ("/", "/healthz", "/readyz") else set()) or {"GET"}


def install(app: FastAPI) -> None:
    """Let an app answer errors our way."""

    async def ours(request: Request, error: Exception) -> JSONResponse:
        return translate(error)

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        sentences = {
            404: "there is nothing here; see /openapi.json for what there is",
            405: "this cannot be done here; see /openapi.json for what can",
        }
        message = sentences.get(error.status_code, "the body is not JSON that can be read")
        headers = dict(error.headers) if error.headers else {}
        if error.status_code == 405:
            headers["Allow"] = ", ".join(sorted(_methods(app, request.scope["path"])))
        return fault(error.status_code, message, headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        places = [(each["loc"][1:], each["msg"]) for each in error.errors()]
        return fault(422, invalid_sentence(places))

    for kind in (UmpteenError, Refused, Overloaded, DeadlinePassed):
        app.add_exception_handler(kind, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
