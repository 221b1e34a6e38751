"""Reads a body after the caller is admitted, and within its limit."""

from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.requests import ClientDisconnect, Request

from search.mistakes import shortened
from service.api.http.headers import header
from service.errors import TooLarge, UnsupportedMediaType

JSON = "application/json"

MAX_BODY_BYTES = 16_000_000
"""Larger than the wire's largest message, a log chunk of a million characters that are all escaped."""

SMALL_BODY_BYTES = 20_000
"""Reports and heartbeats are smaller, but for those of many hundred values."""

UNDECLARED = {"", "application/x-www-form-urlencoded", "application/octet-stream", "text/plain"}
"""What clients send for a body of which they know nothing; the second is that of `curl -d`."""


async def read_body(
    request: Request,
    limit: int,
    too_large: Callable[[], TooLarge],
    admit: Callable[[Request], Awaitable[None]] | None = None,
) -> bytes:
    """As `read_chunks`; without a generator, because most bodies have one chunk.

    `admit` may refuse a call that has sent more than `SMALL_BODY_BYTES` before the rest is read.
    """
    _check_announced(request, limit, too_large)
    body, is_whole = bytearray(), False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large()
        is_whole = not message.get("more_body", False)
        if admit is not None and not is_whole and len(body) > SMALL_BODY_BYTES:
            await admit(request)
            admit = None
    return bytes(body)


async def read_chunks(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> AsyncGenerator[bytes, None]:
    """Raises UnsupportedMediaType for a compressed body, and the error of `too_large` for more than `limit` bytes."""
    _check_announced(request, limit, too_large)
    read = 0
    async for chunk in request.stream():
        read += len(chunk)
        if read > limit:
            raise too_large()
        yield chunk


def _check_announced(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> None:
    if (coding := header(request, b"content-encoding")) is not None and coding.lower() != "identity":
        raise UnsupportedMediaType(f"the body of this call cannot be in {shortened(coding)}; send it without a coding")
    if int(header(request, b"content-length") or 0) > limit:
        raise too_large()


def content_type(request: Request) -> str:
    """Without its parameters, in lower case."""
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    return kind == JSON or kind.endswith("+json")


def unsupported(kind: str, wanted: str) -> UnsupportedMediaType:
    return UnsupportedMediaType(f"the body of this call cannot be {shortened(kind)}; send it as {wanted}")


def body_too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body of this call may have at most {limit / 1e6:g} MB", max_bytes=limit)
