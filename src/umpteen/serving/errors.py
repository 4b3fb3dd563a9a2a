"""From our errors to HTTP answers: a code, one sentence, and nothing of the machine in it."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from umpteen.errors import ConfigError, DataError, NotWritten, StoreDamaged, UmpteenError
from umpteen.serving.batching import DeadlinePassed, Overloaded
from umpteen.serving.wire import ErrorResponse

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
    500: "failed",
    503: "cannot_change",
    504: "too_late",
}
BREAKS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorResponse, "description": CODES[code].replace("_", " ")}
    for code in (400, 401, 403, 413, 415, 422, 429)
}
"""What any route may answer, for the OpenAPI document."""


class Refused(Exception):
    """A request that cannot be granted.

    Args:
        status: The HTTP status.
        message: One sentence for the caller.
        headers: To send along.
    """

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
            "the store of changes is damaged, so nothing was changed; predictions go on, changes "
            "need umpteen repair",
        )
    if isinstance(error, ConfigError | DataError):
        return fault(422, str(error))
    logger.exception("request failed", exc_info=error)
    return fault(500, "the service failed on this request; its log says why")


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
        headers = dict(error.headers) if error.headers else None
        return fault(error.status_code, message, headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        # The first few, without the value: it may be long or private.
        places = [
            f"{'.'.join(str(p) for p in each['loc'][1:]) or 'body'}: {each['msg']}"
            for each in error.errors()[:3]
        ]
        return fault(422, f"not valid: {'; '.join(places)}"[:500])

    for kind in (UmpteenError, Refused, Overloaded, DeadlinePassed):
        app.add_exception_handler(kind, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
