"""Headers of calls and of answers."""

from starlette.requests import Request

from service.runtime.context import Context


def header(request: Request, name: bytes) -> str | None:
    """As `request.headers.get`, in a fifth of its time."""
    for known, value in request.scope["headers"]:
        if known == name:
            text: str = value.decode("latin-1")
            return text
    return None


def bearer_token(authorization: str | None) -> str | None:
    """The token of an `Authorization` header; None for another scheme or an empty token."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def services_header(context: Context) -> dict[str, str]:
    """The header in which answers to agents and slots name all services, so that they can go to another one."""
    return {"Paceline-Services": " ".join(context.service_urls)} if context.service_urls else {}
