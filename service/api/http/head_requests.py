"""HEAD: the status and headers of GET, without its body."""

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Runs GET for HEAD, and ends it as soon as its headers are sent: the body may be a stream without an end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        get = {**scope, "method": "GET"}
        with anyio.CancelScope() as call:

            async def send_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    await send(message)
                    await send({"type": "http.response.body", "body": b""})
                    call.cancel()

            await self._app(get, receive, send_headers)
        if "route" in get:
            scope["route"] = get["route"]
