"""Protection against web pages: a page of another site can send calls through the user's browser."""

import re
from contextlib import suppress
from functools import lru_cache

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.http.headers import bearer_token
from service.api.http.problems import problem_response
from service.errors import BadRequest, CrossOrigin, ForeignHost, ServiceError, Unavailable, UnsupportedMediaType
from service.hosts import Authority, canonical_host
from service.operations.tokens import Access, access_of
from service.runtime.context import Context
from service.settings import Settings
from service.store.attempts import attempt_by_revoked_token, attempt_by_token

SAFE_METHODS = {"GET", "HEAD", "OPTIONS", "TRACE"}
OWN_SITES = {"same-origin", "none"}
"""The values of Sec-Fetch-Site for the service's own pages and for what the user typed."""
DEFAULT_PORTS = {"http": 80, "https": 443}

ADMITTED_BY_TOKEN = "paceline.admitted_by_token"  # noqa: S105 - a key of the scope
"""In the scope of a call: only its token has admitted it, so that it may do no more than the token allows."""

_ORIGIN = re.compile(r"(https?)://(.+)", re.IGNORECASE)


class CrossOriginProtection:
    """Refuses what a web page may have sent, unless the call has a valid token, which no page of another site has.

    - A Host that is not the service's: a page reads the answers of its own host, whose name its owner may resolve to
      the service's address (DNS rebinding).
    - A call that changes something and comes from a page of another origin.
    - A body whose type a browser sends to other origins without asking them first, except forms, as curl sends them.

    Where each call needs a token, only malformed Host headers are refused: the token decides.
    """

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context
        self._is_accepted = lru_cache(maxsize=256)(self._accepts_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        checked = scope["type"] == "http" and not self._is_plain_call(scope)
        refusal = self._refusal(scope) if checked else None
        if refusal is not None and not isinstance(refusal, BadRequest):
            refusal = await self._unless_token(Headers(scope=scope), refusal)
            scope[ADMITTED_BY_TOKEN] = refusal is None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await problem_response(refusal)(scope, receive, send)

    def _is_plain_call(self, scope: Scope) -> bool:
        """Whether `_refusal` accepts it for sure: one accepted host, JSON or no type, nothing that only browsers send.

        It saves most of the check for reports, of which there are thousands in a second.
        """
        host = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    return False
                host = value
            elif (
                name == b"origin"
                or name.startswith(b"sec-fetch-")
                or (name == b"content-type" and value != b"application/json")
            ):
                return False
        return host is not None and self._is_accepted(host, _reached_at(scope))

    def _accepts_host(self, host: bytes, reached_at: str) -> bool:
        try:
            authority = Authority.parse(host.decode("latin-1"))
        except ValueError:
            return False
        settings = self._context.settings
        return settings.needs_tokens or _is_own(authority, settings, reached_at)

    def _refusal(self, scope: Scope) -> ServiceError | None:
        headers = Headers(scope=scope)
        try:
            host = _host(headers, scope["http_version"])
        except ValueError as error:
            return BadRequest(f"the Host header is wrong: {error}")
        if self._context.settings.needs_tokens:
            return None
        if host is not None and not _is_own(host, self._context.settings, _reached_at(scope)):
            return _foreign_host(host)
        if scope["method"] in SAFE_METHODS:
            return None
        return _foreign_page(headers, host) or _foreign_body(headers)

    async def _unless_token(self, headers: Headers, refusal: ServiceError) -> ServiceError | None:
        token = bearer_token(headers.get("authorization"))
        if token is None:
            return refusal
        try:
            return None if await self._context.threads.checking(_is_known, self._context, token) else refusal
        except SQLAlchemyError:
            return Unavailable("the database does not answer or is busy, so the token cannot be checked; retry")


def _host(headers: Headers, http_version: str) -> Authority | None:
    """The request's only Host. HTTP/1.0 does not require one. Raises ValueError."""
    hosts = headers.getlist("host")
    if len(hosts) > 1:
        raise ValueError("there are several; send one")
    if not hosts:
        if http_version == "1.0":
            return None
        raise ValueError("there is none; HTTP/1.1 requires it")
    return Authority.parse(hosts[0])


def _reached_at(scope: Scope) -> str:
    """The local address of the connection; empty if the server does not know it."""
    return str((scope.get("server") or ("", None))[0])


def _is_own(host: Authority, settings: Settings, reached_at: str) -> bool:
    """Whether it is loopback, the address that the service is bound to or reached at, or in PACELINE_HOSTS."""
    addresses = {canonical_host(settings.host), canonical_host(reached_at)} - {""}
    return host.is_loopback or host.host in addresses or any(pattern.matches(host) for pattern in settings.hosts)


def _foreign_host(host: Authority) -> ForeignHost:
    return ForeignHost(
        f"{host.host!r} is not a host of this service, so the call may come from a web page. If callers reach the "
        f"service under this name, start it with PACELINE_HOSTS={host.host or 'NAME'}, or send a token: "
        f"Authorization: Bearer <token>",
        host=host.host,
    )


def _foreign_page(headers: Headers, host: Authority | None) -> CrossOrigin | None:
    origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
    if all(_is_origin_of(host, origin) for origin in origins) and OWN_SITES.issuperset(sites):
        return None
    return CrossOrigin(
        "the call comes from a web page of another origin, as its Origin or Sec-Fetch-Site header says. Such a page "
        "may change nothing here. Call from outside a browser, or send a token: Authorization: Bearer <token>"
    )


def _is_origin_of(host: Authority | None, origin: str) -> bool:
    """The scheme may differ, because a proxy may have ended TLS."""
    found = _ORIGIN.fullmatch(origin)
    with suppress(ValueError):
        if host is not None and found is not None:
            return Authority.parse(found[2]).same_as(host, DEFAULT_PORTS[found[1].lower()])
    return False


def _foreign_body(headers: Headers) -> UnsupportedMediaType | None:
    types = ",".join(headers.getlist("content-type")).split(",")
    if "text/plain" in {kind.partition(";")[0].strip().lower() for kind in types}:
        return _unsupported("a body may not be text/plain")
    if _has_body(headers) and "content-type" not in headers and _is_from_browser(headers):
        return _unsupported("the body has no type")
    return None


def _unsupported(what: str) -> UnsupportedMediaType:
    return UnsupportedMediaType(
        f"{what}: a web page may send it without asking. Say what the body is (Content-Type: application/json, "
        f"application/yaml, application/zip …), or send a token: Authorization: Bearer <token>"
    )


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _is_from_browser(headers: Headers) -> bool:
    return any(name == "origin" or name.startswith("sec-fetch-") for name in headers)


def _is_known(context: Context, token: str) -> bool:
    """Whether it is an access token or a lease token.

    A holder whose attempt has ended, or whose lease is revoked, must get its route's answer.
    """
    if isinstance(access_of(context.database, token), Access):
        return True
    with context.database.read() as session:
        return any(find(session, token) is not None for find in (attempt_by_token, attempt_by_revoked_token))
