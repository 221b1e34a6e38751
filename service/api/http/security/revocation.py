"""Streams and long polls end when their access token is removed, rotated or expires."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from service.errors import Unauthorized
from service.runtime.context import Context

LAST_CHUNK_SECONDS = 1.0
"""How long the end of a stream may take to be sent to a client that does not read."""


def admit(request: Request, digest: str) -> None:
    """Note the digest of the valid access token that the call has."""
    request.state.access_token_digest = digest


@contextmanager
def revocation_of(scope: Scope) -> Iterator[asyncio.Event]:
    """Yield an event that is set when the call's access token stops being valid; never, for a call without one."""
    digest: str | None = scope.get("state", {}).get("access_token_digest")
    context: Context = scope["app"].state.context
    if digest is None:
        yield asyncio.Event()
        return
    with context.revoked_tokens.subscribe(digest) as revoked:
        yield revoked


def check_not_revoked(revoked: asyncio.Event) -> None:
    """Raises Unauthorized."""
    if revoked.is_set():
        raise Unauthorized("the token has been removed or rotated, or has expired, while the call was waiting")


class RevocableStream(StreamingResponse):
    """A stream that ends early when the call's access token stops being valid.

    It then looks complete, unless it has told its length.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = has_ended = False

        async def watched_send(message: Message) -> None:
            nonlocal has_begun, has_ended
            has_begun = True
            has_ended = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        with revocation_of(scope) as revoked:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when, revoked, tasks.cancel_scope)
                await super().__call__(scope, receive, watched_send)
                tasks.cancel_scope.cancel()
        if has_begun and not has_ended and "content-length" not in self.headers:
            with anyio.move_on_after(LAST_CHUNK_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cancel_when(revoked: asyncio.Event, scope: anyio.CancelScope) -> None:
    await revoked.wait()
    scope.cancel()
