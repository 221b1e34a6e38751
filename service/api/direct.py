"""Calls that are made so often that FastAPI's own way to a route would cost more than what they do."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.routing import Route

from service.errors import BadRequest

Message = TypeVar("Message", bound=BaseModel)


def serve_directly(app: FastAPI, path: str, answer: Callable[[Request], Awaitable[BaseModel]]) -> None:
    """Let POSTs to `path` go straight to `answer`; FastAPI's route of the same path describes the call."""

    async def endpoint(request: Request) -> Response:
        return Response((await answer(request)).model_dump_json(), media_type="application/json")

    app.router.routes.insert(0, Route(path, endpoint, methods=["POST"]))


async def message_in(request: Request, kind: type[Message]) -> Message:
    """As FastAPI reads it. Raises RequestValidationError, and BadRequest for what no parser of JSON takes.

    Not by pydantic's own parser, which refuses text that is not quite Unicode.
    """
    try:
        return kind.model_validate(_document(await request.body()))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from error


def _document(body: bytes) -> Any:
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        fault = {"type": "json_invalid", "loc": ("body", error.pos), "msg": f"JSON decode error: {error.msg}"}
        raise RequestValidationError([fault]) from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body cannot be read as JSON: {error}") from error
