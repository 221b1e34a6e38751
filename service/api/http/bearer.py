"""The bearer token of a call."""


async def bearer_token(authorization: str | None) -> str | None:
    """The token of an `Authorization` header; None for another scheme or an empty token."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None
