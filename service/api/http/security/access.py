"""Access control by the role of the caller's token. On loopback no token is needed by default."""

from collections.abc import Awaitable, Callable

from fastapi import Request

from service.api.http.dependencies import Ctx, Token
from service.api.http.security.cross_origin import ADMITTED_BY_TOKEN
from service.api.http.security.revocation import admit
from service.domain.roles import MAY_ACT_AS, Role
from service.errors import Forbidden, Unauthorized
from service.operations.tokens import Access, Expired, access_of
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.store.attempts import attempt_by_token
from service.store.tables import ExperimentRow

READ_METHODS = {"GET", "HEAD"}


def needs(role: Role) -> Callable[[Request, Context, str | None], Awaitable[None]]:
    """A dependency that admits callers with this role. Raises Unauthorized or Forbidden."""

    async def check(request: Request, context: Ctx, token: Token) -> None:
        await _check(request, context, token, role)

    return check


async def needs_by_method(request: Request, context: Ctx, token: Token) -> None:
    """GET and HEAD need `read`, everything else `write`."""
    await _check(request, context, token, Role.READ if request.method in READ_METHODS else Role.WRITE)


async def needs_read_or_lease(request: Request, context: Ctx, token: Token) -> None:
    """As `needs_by_method`, but the lease token of a running attempt is enough to read its own package."""
    if request.method in READ_METHODS and token and _token_decides(request, context):
        package = await context.threads.checking(_package_of_lease, context, token)
        if package is not None and package == request.path_params.get("package"):
            return
        if package is not None:
            raise Forbidden("a lease token only gives access to its own experiment's package")
    await needs_by_method(request, context, token)


def _package_of_lease(context: Context, token: str) -> str | None:
    """The package that the running attempt with this lease token needs; empty if it needs none."""
    with context.database.read() as session:
        attempt = attempt_by_token(session, token)
        if attempt is None or attempt.ended_at is not None:
            return None
        return spec_of(session.get_one(ExperimentRow, attempt.experiment_id)).trainer.package or ""


def _token_decides(request: Request, context: Context) -> bool:
    return context.settings.needs_tokens or request.scope.get(ADMITTED_BY_TOKEN, False)


async def _check(request: Request, context: Context, token: str | None, needed: Role) -> None:
    if not _token_decides(request, context):
        return
    if token is None:
        raise Unauthorized(
            "this service requires a token: Authorization: Bearer <token>. The command line and agents send that of "
            "PACELINE_TOKEN; an admin creates one with `paceline token create` on the service's machine"
        )
    access = await context.threads.checking(_access, context, token)
    if needed not in MAY_ACT_AS[access.role]:
        raise Forbidden(
            f"a token with the role {access.role} may not make this call; it needs {needed}",
            role=access.role,
            needed=needed,
        )
    context.token_use.note(access.name)
    admit(request, access.digest)


def _access(context: Context, token: str) -> Access:
    """Raises Unauthorized."""
    match access_of(context.database, token):
        case None:
            raise Unauthorized(
                "this service does not know the token; an admin creates one with `paceline token create`"
            )
        case Expired(name=name, at=at, is_replaced=True):
            raise Unauthorized(
                f"this token of {name!r} was replaced, and has not been valid since {at:%Y-%m-%d %H:%M} UTC; use "
                f"the new one, which `paceline token rotate {name}` showed to an admin"
            )
        case Expired(name=name, at=at):
            raise Unauthorized(
                f"the token {name!r} has not been valid since {at:%Y-%m-%d %H:%M} UTC; an admin makes a new one "
                f"with `paceline token rotate {name}`"
            )
        case access:
            return access
