"""Which error a request with several faults is answered with: the first of 400, 401, 403, 404, 409, 422."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from starlette.requests import Request

from service.api.http.headers import bearer_token
from service.errors import BadRequest, Invalid, LeaseLost, NotFound, TooLarge, UnsupportedMediaType
from service.operations.attempts.leases import check_lease
from service.runtime.context import Context

Answer = TypeVar("Answer")


async def with_error_precedence(
    request: Request,
    call: Callable[[Request], Awaitable[Answer]],
    look_up: Callable[[Request], Awaitable[None]],
    mistakes: tuple[type[Exception], ...] = (Invalid,),
) -> Answer:
    """The answer of `call`. If the request has `mistakes`, `look_up` may raise what comes before them.

    Only a missing token comes before a body that cannot be read; for a large body also `LeaseBody`'s refusals.
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


async def look_up_lease(request: Request) -> None:
    """Raises Unauthorized, NotFound, and LeaseLost."""
    token = bearer_token(request.headers.get("authorization"))
    context: Context = request.app.state.context
    await context.threads.brief(_check_lease, context, request.path_params["trial"], token)


def _check_lease(context: Context, trial: str, token: str | None) -> None:
    with context.database.read() as session:
        check_lease(session, trial, token)
