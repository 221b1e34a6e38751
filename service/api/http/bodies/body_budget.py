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
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            size = len(message.get("body", b""))
            if size > self._budget.free_bytes:
                raise Busy("other calls send so much that there is no memory for more; repeat the call later")
            taken += size
            self._budget.free_bytes -= size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._budget.free_bytes += taken


def _may_be_large(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) > SMALL_BODY_BYTES
        if name == b"transfer-encoding":
            return True
    return False
