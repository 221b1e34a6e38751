"""Which error a request with several faults is answered with: the first of 400, 401, 403, 404, 409, 422."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from starlette.requests import Request

from service.errors import BadRequest, Invalid, LeaseLost, NotFound, TooLarge, UnsupportedMediaType

Answer = TypeVar("Answer")


async def with_error_precedence(
    request: Request,
    call: Callable[[Request], Awaitable[Answer]],
    look_up: Callable[[Request], Awaitable[None]],
    mistakes: tuple[type[Exception], ...] = (Invalid,),
) -> Answer:
    """The answer of `call`. If the request has `mistakes`, `look_up` may raise what comes before them.

    Only a missing token comes before a body that cannot be read; for a large body also the refusals
    of a `JsonBody` that is `leased`.
    """
    try:
        return await call(request)
    except mistakes:
        await look_up(request)
        raise
    except (BadRequest, TooLarge, UnsupportedMediaType):
        with suppress(NotFound, LeaseLost):
            await look_up(request)
        raise
