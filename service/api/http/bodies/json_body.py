"""JSON bodies of calls, as messages."""

from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from search.mistakes import mistakes_of
from service.api.http.bodies.body_reader import JSON, UNDECLARED, content_type, is_json, read_body, unsupported
from service.api.http.bodies.json_body_limits import check_parts, read_json
from service.api.http.body_size_limit import body_too_large
from service.errors import Invalid
from service.runtime.context import Context

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
