"""Lets calls wait until the application has all of its routes."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send


class RoutesAwaited:
    """The innermost middleware: what others answer, such as reports, does not wait."""

    def __init__(self, app: ASGIApp, complete: asyncio.Event) -> None:
        self._app = app
        self._complete = complete

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._complete.wait()
        await self._app(scope, receive, send)
