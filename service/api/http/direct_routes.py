"""Routes that bypass FastAPI's routing and dependencies, which would cost more than the call itself."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from trainer.traces import tracing


class DirectRoute:
    """Middleware that passes a POST to `path` directly to `answer`.

    FastAPI's route of the same path describes the call in OpenAPI. `handlers` answer exceptions as in FastAPI, except
    the handler of Exception itself, which FastAPI runs in its outermost middleware.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        answer: Callable[[Request], Awaitable[BaseModel]],
        handlers: Mapping[Any, ExceptionHandler],
    ) -> None:
        self._app = app
        self._answer = answer
        self._route = Route(path, answer, methods=["POST"])  # used for matching only
        known = {kind: handler for kind, handler in handlers.items() if kind is not Exception}
        self._served = ExceptionMiddleware(self._serve, known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            match, path_scope = self._route.matches(scope)
            if match is Match.FULL:
                scope.update(path_scope, route=self._route)
                tracing.rename(f"POST {self._route.path}")
                await self._served(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(Request(scope, receive, send))
        response = Response(answer.model_dump_json(), media_type="application/json")
        await response(scope, receive, send)
