"""Access control by the role of the caller's token. On loopback no token is needed by default."""

from collections.abc import Callable

from fastapi import Request

from service.api.http.dependencies import Ctx, Token
from service.domain.roles import MAY_ACT_AS, Role
from service.errors import Forbidden, Unauthorized
from service.operations.tokens import role_of
from service.runtime.context import Context
from service.store.attempts import attempt_by_token

READ_METHODS = {"GET", "HEAD"}


def needs(role: Role) -> Callable[[Context, str | None], None]:
    """A dependency that admits callers with this role. Raises Unauthorized or Forbidden."""

    def check(context: Ctx, token: Token) -> None:
        _check(context, token, role)

    return check


def needs_by_method(request: Request, context: Ctx, token: Token) -> None:
    """GET and HEAD need `read`, everything else `write`."""
    _check(context, token, Role.READ if request.method in READ_METHODS else Role.WRITE)


def needs_read_or_lease(request: Request, context: Ctx, token: Token) -> None:
    """As `needs_by_method`, but the lease token of a running attempt is enough to read."""
    if request.method in READ_METHODS and token and context.settings.needs_tokens and _is_lease_token(context, token):
        return
    needs_by_method(request, context, token)


def _is_lease_token(context: Context, token: str) -> bool:
    with context.database.read() as session:
        attempt = attempt_by_token(session, token)
    return attempt is not None and attempt.ended_at is None


def _check(context: Context, token: str | None, needed: Role) -> None:
    if not context.settings.needs_tokens:
        return
    if token is None:
        raise Unauthorized("this service requires a token: Authorization: Bearer <token>")
    role = role_of(context.database, token)
    if role is None:
        raise Unauthorized("this service does not know the token; an admin creates one with `paceline token create`")
    if needed not in MAY_ACT_AS[role]:
        raise Forbidden(
            f"a token with the role {role} may not make this call; it needs {needed}",
            role=role,
            needed=needed,
        )
