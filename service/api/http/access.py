"""Who may call what. On loopback everybody may; elsewhere a token's role decides."""

from collections.abc import Callable

from fastapi import Request

from service.api.http.dependencies import Ctx, Token
from service.domain.roles import MAY_ACT_AS, Role
from service.errors import Forbidden, Unauthorized
from service.operations.tokens import role_of
from service.runtime.context import Context
from service.store.attempts import attempt_by_token

READING = {"GET", "HEAD"}


def needs(role: Role) -> Callable[[Context, str | None], None]:
    """A dependency that lets callers with this role through. Raises Unauthorized or Forbidden."""

    def check(context: Ctx, token: Token) -> None:
        _check(context, token, role)

    return check


def needs_by_method(request: Request, context: Ctx, token: Token) -> None:
    """Looking needs `read`, everything else `write`."""
    _check(context, token, Role.READ if request.method in READING else Role.WRITE)


def needs_read_or_lease(request: Request, context: Ctx, token: Token) -> None:
    """Whoever runs a trial may fetch its package with the trial's own lease."""
    if request.method in READING and token and context.settings.needs_tokens and _holds(context, token):
        return
    needs_by_method(request, context, token)


def _holds(context: Context, token: str) -> bool:
    with context.database.read() as session:
        attempt = attempt_by_token(session, token)
    return attempt is not None and attempt.ended_at is None


def _check(context: Context, token: str | None, needed: Role) -> None:
    if not context.settings.needs_tokens:
        return
    if token is None:
        raise Unauthorized("this service asks for a token: Authorization: Bearer <token>")
    role = role_of(context.database, token)
    if role is None:
        raise Unauthorized("the token is not known here; an admin makes one with `paceline token create`")
    if needed not in MAY_ACT_AS[role]:
        raise Forbidden(f"a token with the role {role} may not do this; it needs {needed}", role=role, needed=needed)
