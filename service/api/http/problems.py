"""Every error as application/problem+json (RFC 9457), with nothing in it that is not for the caller."""

import json
import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from service.errors import InsufficientStorage, Invalid, Mistake, ServiceError, Unauthorized, Unavailable
from service.store.sql.database import is_full, is_outage

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 2


class Problem(BaseModel):
    """What went wrong, and what would be right. Facts that help are further members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str


class ProblemResponse(JSONResponse):
    """Says it whatever it is: callers are quoted, and may have sent what UTF-8 does not hold."""

    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's OpenAPI description."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"model": Problem, "description": "See `detail`", "content": content} for status in statuses}


def add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(RequestValidationError, _wrong_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(DBAPIError, _database_error)
    app.add_exception_handler(PoolTimeout, _outage)
    app.add_exception_handler(Exception, _our_error)


def answer(error: ServiceError, headers: dict[str, str] | None = None) -> Response:
    return ProblemResponse(error.body(), error.status, headers)


async def _service_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)  # noqa: S101 - registered for it
    return answer(error, _headers(error))


def _headers(error: ServiceError) -> dict[str, str] | None:
    match error:
        case Unavailable():
            return {"Retry-After": str(RETRY_AFTER_SECONDS)}
        case Unauthorized():
            return {"WWW-Authenticate": "Bearer"}
        case _:
            return None


async def _wrong_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    return answer(Invalid([_mistake(fault) for fault in error.errors()]))


def _mistake(fault: dict[str, Any]) -> Mistake:
    place: Sequence[Any] = [part for part in fault["loc"] if part not in {"body", "query", "path"}]
    return Mistake(
        ".".join(map(str, place)), fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    if isinstance(error.__cause__, ServiceError):  # raised while FastAPI read the body
        return answer(error.__cause__)
    problem = ServiceError(f"{request.method} {request.url.path}: {error.detail}; the calls are in /openapi.json")
    body = problem.body() | {
        "type": error.detail.lower().replace(" ", "-"),
        "title": error.detail,
        "status": error.status_code,
    }
    return ProblemResponse(body, error.status_code, error.headers)


async def _database_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)  # noqa: S101 - registered for it
    if isinstance(error, DataError):
        logger.warning("%s %s sent what the database cannot hold", request.method, request.url.path, exc_info=error)
        return answer(Invalid([Mistake("", "a value is longer or larger than the database can hold")]))
    if is_full(error):
        return await _full(request, error)
    return await (_outage if is_outage(error) else _our_error)(request, error)


async def _outage(_: Request, error: Exception) -> Response:
    logger.warning("the database does not answer: %s", error.__cause__ or error)
    away = Unavailable("the database is away or busy; ask again, nothing was lost")
    return answer(away, {"Retry-After": str(RETRY_AFTER_SECONDS)})


async def _full(_: Request, error: Exception) -> Response:
    logger.error("the database's disk is full: %s", error.__cause__ or error)
    full = InsufficientStorage("the database's disk is full; free some of it and ask again, nothing was lost")
    return answer(full, {"Retry-After": str(RETRY_AFTER_SECONDS)})


async def _our_error(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(ServiceError("an error of the service itself; its log says more"))
