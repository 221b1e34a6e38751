"""Every error as application/problem+json (RFC 9457). Nothing internal, such as a stack trace, is in a body."""

import json
import logging
from typing import Any

from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from search.mistakes import Mistake
from service.errors import (
    BadRequest,
    InsufficientStorage,
    InternalError,
    Invalid,
    RangeNotSatisfiable,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from service.store.sql.database import is_full, is_locked, is_outage, is_sqlite_locked
from trainer.process_log.context import log_context

MEDIA_TYPE = "application/problem+json"

logger = logging.getLogger(__name__)

READING = {"GET", "HEAD"}

NOT_DONE = "the database does not answer or is busy; retry, nothing was lost"

MAY_BE_DONE = (
    "the database does not answer or is busy, and the call may have been carried out: repeat it if it had an "
    "Idempotency-Key, which keeps it from being done twice, or look first whether it was done"
)

_RETRY_AFTER = {"Retry-After": "2"}  # seconds


class ProblemResponse(JSONResponse):
    """Replaces what UTF-8 cannot encode: a message may quote the caller's text, which may have lone surrogates."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def problem_response(error: ServiceError) -> Response:
    return ProblemResponse(problem_body(error), error.status, _headers(error))


def problem_body(error: ServiceError) -> dict[str, Any]:
    """The body names the id of the request, so that the service's log can be searched for it."""
    request = log_context.request_id
    return error.body() if request is None else {**error.body(), "request": request}


async def _service_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)  # noqa: S101 - registered for it
    return problem_response(error)


def _headers(error: ServiceError) -> dict[str, str] | None:
    match error:
        case Unavailable() | InsufficientStorage():
            return _RETRY_AFTER
        case Unauthorized():
            return {"WWW-Authenticate": "Bearer"}
        case RangeNotSatisfiable():
            return {"Content-Range": f"bytes */{error.facts['size']}"}
        case _:
            return None


async def _client_gone(request: Request, _: Exception) -> Response:
    """No client gets this answer; it is counted in the metrics."""
    logger.info("%s %s: the client has gone before its call was complete", request.method, request.url.path)
    return problem_response(BadRequest("the client has gone"))


async def _database_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)  # noqa: S101 - registered for it
    if isinstance(error, DataError):
        logger.warning(
            "%s %s: a value does not fit its database column", request.method, request.url.path, exc_info=error
        )
        return problem_response(Invalid([Mistake((), "a value is longer or larger than the database can store")]))
    if is_full(error):
        return await _full(request, error)
    return await (_outage if is_outage(error) else _internal_error)(request, error)


async def _outage(request: Request, error: Exception) -> Response:
    logger.warning("the database does not answer: %s", error.__cause__ or error)
    return problem_response(Unavailable(MAY_BE_DONE if _may_be_done(request, error) else NOT_DONE))


def _may_be_done(request: Request, error: Exception) -> bool:
    """Whether the call changes something: the lost answer may be that of a COMMIT, or of a read after it.

    Not so where another transaction has what it would change.
    """
    is_refused = isinstance(error, DBAPIError) and (is_locked(error) or is_sqlite_locked(error))
    return request.method not in READING and not is_refused


async def _full(_: Request, error: Exception) -> Response:
    logger.error("the database's disk is full: %s", error.__cause__ or error)
    full = InsufficientStorage("the database's disk is full; free space on it and retry, nothing was lost")
    return problem_response(full)


async def _internal_error(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(InternalError("an internal error of the service; its log has the details"))


ERROR_HANDLERS: dict[Any, ExceptionHandler] = {
    ServiceError: _service_error,
    ClientDisconnect: _client_gone,
    DBAPIError: _database_error,
    PoolTimeout: _outage,
    Exception: _internal_error,
}
"""Those of calls that are served without FastAPI; the others are in `route_problems`."""
