"""Errors that FastAPI and Starlette's router raise, as problems; see `problems` for all others."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.routing import Match

from search.mistakes import Mistake
from service.api.http.problems import ERROR_HANDLERS, ProblemResponse, problem_body, problem_response
from service.errors import BadRequest, Invalid, MethodNotAllowed, NotFound


def add_error_handlers(app: FastAPI) -> None:
    for kind, handler in ERROR_HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(RequestValidationError, _wrong_request)
    app.add_exception_handler(HTTPException, _http_error)


async def _wrong_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    return problem_response(Invalid([_mistake(fault) for fault in error.errors()]))


def _mistake(fault: dict[str, Any]) -> Mistake:
    path = tuple(part for part in fault["loc"] if part not in {"body", "query", "path"})
    return Mistake(path, fault["msg"].removeprefix("Value error, "))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    call = f"{request.method} {request.url.path}"
    match error.status_code:
        case 404:
            return problem_response(NotFound(f"{call}: there is no such path; the calls are in /openapi.json"))
        case 405:
            allowed = ", ".join(sorted(_methods_of(request)))
            return ProblemResponse(
                problem_body(MethodNotAllowed(f"{call}: this path has {allowed} only")), 405, {"Allow": allowed}
            )
        case _:
            return problem_response(BadRequest(f"{call}: {error.detail}"))


def _methods_of(request: Request) -> set[str]:
    """All methods of the path. Starlette's own answer has those of the first route alone."""
    methods = {
        method
        for route in iter_route_contexts(request.app.routes)
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return methods | ({"HEAD"} if "GET" in methods else set())
