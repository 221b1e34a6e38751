"""JSON bodies of calls: read after the caller is admitted, and within their limit."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from search.mistakes import mistakes_of, shortened
from service.api.http.bodies.json_body_limits import check_parts, read_json
from service.api.http.request_limits import body_too_large
from service.errors import Invalid, TooLarge, UnsupportedMediaType
from service.runtime.context import Context

JSON = "application/json"

UNDECLARED = {"", "application/x-www-form-urlencoded", "application/octet-stream", "text/plain"}
"""What clients send for a body of which they know nothing; the second is that of `curl -d`."""

MAX_MESSAGE_BYTES = 4_000_000
SMALL_MESSAGE_BYTES = 20_000
MANY_PARTS = 2_000
"""A message with more names and values is read in a thread, because the event loop would wait for it."""

Message = TypeVar("Message", bound=BaseModel)


class JsonBody(Generic[Message]):
    """A dependency that parses a JSON body. Without a body it takes `absent`, if that is given.

    FastAPI does not know of this body, so `openapi` describes it: FastAPI would read a body that it knows before any
    dependency runs, including the one that checks access.
    """

    def __init__(self, kind: type[Message], absent: Message | None = None, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._kind = kind
        self._absent = absent
        self._max_bytes = max_bytes

    @property
    def openapi(self) -> dict[str, Any]:
        """The `openapi_extra` of a route with this body."""
        schema = {"$ref": f"#/components/schemas/{self._kind.__name__}"}
        return {"requestBody": {"required": self._absent is None, "content": {JSON: {"schema": schema}}}}

    async def __call__(self, request: Request) -> Message:
        """Raises BadRequest for what is not JSON, UnsupportedMediaType, TooLarge, and Invalid with every mistake."""
        body = await read_body(request, self._max_bytes, partial(body_too_large, self._max_bytes))
        if not body and self._absent is not None:
            return self._absent
        if not is_json(kind := content_type(request)) and kind not in UNDECLARED:
            raise unsupported(kind, JSON)
        if len(body) > SMALL_MESSAGE_BYTES and check_parts(body) > MANY_PARTS:
            context: Context = request.app.state.context
            return await context.threads.reading(self._message, body)
        return self._message(body)

    def _message(self, body: bytes) -> Message:
        try:
            return self._kind.model_validate(read_json(body))
        except ValidationError as error:
            raise Invalid(mistakes_of(error)) from error


def header(request: Request, name: bytes) -> str | None:
    """As `request.headers.get`, in a fifth of its time."""
    for known, value in request.scope["headers"]:
        if known == name:
            text: str = value.decode("latin-1")
            return text
    return None


async def read_body(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> bytes:
    """As `read_chunks`; without a generator, because most bodies have one chunk."""
    _check_announced(request, limit, too_large)
    chunks, read, is_whole = [], 0, False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        read += len(chunks[-1])
        if read > limit:
            raise too_large()
        is_whole = not message.get("more_body", False)
    return b"".join(chunks)


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
