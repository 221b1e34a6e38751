"""Checks of the lease that a call names, apart from the transaction that the call makes."""

from collections.abc import Callable

from sqlalchemy.orm import Session
from starlette.requests import Request

from service.api.http.headers import bearer_token, header
from service.operations.attempts.leases import check_holder, check_lease
from service.runtime.context import Context
from service.store.tables import AttemptRow


async def look_up_lease(request: Request) -> None:
    """Raises Unauthorized, NotFound, and LeaseLost."""
    await _check(request, check_lease)


async def look_up_holder(request: Request) -> None:
    """Raises Unauthorized, NotFound, and LeaseLost for a revoked lease."""
    await _check(request, check_holder)


async def _check(request: Request, check: Callable[[Session, str, str | None], AttemptRow]) -> None:
    context: Context = request.app.state.context
    token = bearer_token(header(request, b"authorization"))

    def in_session() -> None:
        with context.database.read() as session:
            check(session, request.path_params["trial"], token)

    await context.threads.checking(in_session)
