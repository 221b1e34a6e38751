"""Bounds the memory that the large bodies of all calls take together."""

from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.bodies.body_reader import MAX_BODY_BYTES, SMALL_BODY_BYTES
from service.errors import Busy

LARGEST_BODIES = 4
"""There is room for this many submissions with packages of the largest size."""


@dataclass
class BodyBudget:
    """Used in one event loop."""

    free_bytes: int

    @classmethod
    def of(cls, max_package_bytes: int) -> "BodyBudget":
        return cls(LARGEST_BODIES * (max_package_bytes + MAX_BODY_BYTES))


class BodiesCounted:
    """Middleware: a large body takes from the budget as it arrives, until its call is answered.

    Small ones take nothing, so that reports and heartbeats are never refused: the connections are limited in number.
    """

    def __init__(self, app: ASGIApp, budget: BodyBudget) -> None:
        self._app = app
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _may_be_large(scope):
            await self._app(scope, receive, send)
            return
        share = _Share(self._budget)

        async def counted() -> Message:
            message = await receive()
            share.take(len(message.get("body", b"")))
            return message

        async def answering(message: Message) -> None:
            share.close()  # what comes now is thrown away; a stream may be open for days
            await send(message)

        try:
            await self._app(scope, counted, answering)
        finally:
            share.close()


class _Share:
    """What one call has taken of the budget, until it is answered."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._taken = 0
        self._is_closed = False

    def take(self, size: int) -> None:
        """Raises Busy if there is no room."""
        if self._is_closed:
            return
        if size > self._budget.free_bytes:
            raise Busy("other calls send so much that there is no memory for more; repeat the call later")
        self._taken += size
        self._budget.free_bytes -= size

    def close(self) -> None:
        self._is_closed = True
        self._budget.free_bytes += self._taken
        self._taken = 0


def _may_be_large(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) > SMALL_BODY_BYTES
        if name == b"transfer-encoding":
            return True
    return False
