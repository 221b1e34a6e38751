"""Limits on every request, checked before any route sees it."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.problems import problem_response
from service.errors import BadRequest, TooLarge

MAX_BODY_BYTES = 16_000_000
"""Larger than the wire's largest message, a log chunk of a million characters that are all escaped."""

OWN_LIMITS = {"/v1/packages", "/v1/experiments"}
"""Routes that set the limit of their body themselves, as reports do."""


class RequestLimits:
    """Refuses NUL characters in URLs, which no stored name has, and bodies that are too large."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif "\0" in scope["path"] or b"%00" in scope["query_string"]:
            await problem_response(BadRequest("the URL has a NUL character; remove it"))(scope, receive, send)
        elif scope["path"] in OWN_LIMITS or scope["path"].endswith("/reports"):
            await self._app(scope, receive, send)
        else:
            await self._app(scope, _limited(scope, receive), send)


def _limited(scope: Scope, receive: Receive) -> Receive:
    read = 0
    announced = int(Headers(scope=scope).get("content-length") or 0)

    async def receive_some() -> Message:
        nonlocal read
        if announced > MAX_BODY_BYTES:
            raise body_too_large(MAX_BODY_BYTES, announced)
        message = await receive()
        read += len(message.get("body", b""))
        if read > MAX_BODY_BYTES:
            raise body_too_large(MAX_BODY_BYTES)
        return message

    return receive_some


def body_too_large(limit: int, size: int | None = None) -> TooLarge:
    """`size`: that of the body, if it is known."""
    known = "" if size is None else f", this one has {size / 1e6:.6g} MB"
    return TooLarge(f"the body of this call may have at most {limit / 1e6:g} MB{known}", max_bytes=limit)
