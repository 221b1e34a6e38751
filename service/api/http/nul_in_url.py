"""Refuses URLs with NUL characters, which no stored name has, before any route sees them."""

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.http.problems import problem_response
from service.errors import BadRequest


class NulInUrlRefusal:
    """Middleware for all routes. Databases do not take the character."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ("\0" in scope["path"] or b"%00" in scope["query_string"]):
            await problem_response(BadRequest("the URL has a NUL character; remove it"))(scope, receive, send)
        else:
            await self._app(scope, receive, send)
