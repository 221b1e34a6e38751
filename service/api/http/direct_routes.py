"""Routes that bypass FastAPI's routing and dependencies, which would cost more than the call itself."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from service.api.http.error_precedence import with_error_precedence
from trainer.traces import tracing


class PostPath:
    """A path pattern with parameters that are texts, for POST. It takes the place of a route in the request's scope."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._pattern = compile_path(path)[0]

    def parameters(self, scope: Scope) -> dict[str, str] | None:
        """None for another request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        match = self._pattern.match(scope["path"])
        return None if match is None else match.groupdict()


class DirectRoute:
    """Middleware that passes a POST to `path` directly to `answer`.

    FastAPI's route of the same path describes the call in OpenAPI. `look_up` raises what comes before a request's
    mistakes (`with_error_precedence`). `handlers` answer exceptions as in FastAPI, except the handler of Exception
    itself, which FastAPI runs in its outermost middleware.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: PostPath,
        answer: Callable[[Request], Awaitable[BaseModel]],
        look_up: Callable[[Request], Awaitable[None]],
        handlers: Mapping[Any, ExceptionHandler],
    ) -> None:
        self._app = app
        self._answer, self._look_up = answer, look_up
        self._path = path
        known = {kind: handler for kind, handler in handlers.items() if kind is not Exception}
        self._served = ExceptionMiddleware(self._serve, known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = self._path.parameters(scope)
        if parameters is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"], scope["route"] = parameters, self._path
        if tracing.is_on:
            tracing.rename(f"POST {self._path.path}")
        await self._served(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await with_error_precedence(Request(scope, receive, send), self._answer, self._look_up)
        body = answer.model_dump_json().encode()
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
