"""JSON bodies of calls, as messages.

The names and values of a large body are counted before it is read, because reading takes time for each of them: a body
of 16 MB can have millions, for which Python's parser and pydantic hold the interpreter for minutes.
"""

import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from search.mistakes import UNKNOWN, Mistake, instead_of, mistakes_of, shortened
from service.api.http.bodies.body_reader import (
    JSON,
    SMALL_BODY_BYTES,
    UNDECLARED,
    body_too_large,
    content_type,
    is_json,
    read_body,
    unsupported,
)
from service.api.http.headers import bearer_token, header
from service.api.http.lease_checks import look_up_holder
from service.errors import BadRequest, Invalid, TooLarge
from service.operations.attempts.leases import no_lease_token
from service.runtime.context import Context
from service.specification.json_hooks import WRITTEN_TWICE, RepeatingObject

MAX_MESSAGE_BYTES = 4_000_000
MANY_PARTS = 2_000
"""A message with more names and values is read in a thread, because the event loop would wait for it."""

MAX_PARTS = 100_000
"""Names and values in a message. A report with a hundred metrics has 200."""

Message = TypeVar("Message", bound=BaseModel)


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """For JSON's parser, which would keep the last of several fields of one name. Raises Invalid."""
    found = dict(fields)
    if len(found) < len(fields):
        raise Invalid([Mistake((shortened(name),), WRITTEN_TWICE) for name in RepeatingObject(fields).repeated])
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)  # `json.loads` would make one for each call


class JsonBody(Generic[Message]):
    """A dependency that parses a JSON body. Without a body it takes `absent`, if that is given.

    `leased`: its callers are the attempts' holders, who have no access token that is checked before a body is read. So
    nothing is read of a call without a token, and no large body of a call whose token is not its trial's. A small body
    costs no query here: the transaction that takes the message checks the lease.

    `instead` says of fields that others would expect here what to do or write in their place.

    FastAPI does not know of this body, so `openapi` describes it: FastAPI would read a body that it knows before any
    dependency runs, including the one that checks access.
    """

    def __init__(
        self,
        kind: type[Message],
        absent: Message | None = None,
        max_bytes: int = MAX_MESSAGE_BYTES,
        instead: Mapping[str, str] = MappingProxyType({}),
        *,
        leased: bool = False,
    ) -> None:
        self._kind = kind
        self._absent = absent
        self._max_bytes = max_bytes
        self._instead = instead
        self._leased = leased

    @property
    def openapi(self) -> dict[str, Any]:
        """The `openapi_extra` of a route with this body."""
        schema = {"$ref": f"#/components/schemas/{self._kind.__name__}"}
        return {"requestBody": {"required": self._absent is None, "content": {JSON: {"schema": schema}}}}

    async def __call__(self, request: Request) -> Message:
        """Raises BadRequest for what is not JSON, UnsupportedMediaType, TooLarge, and Invalid with every mistake.

        Of a holder also Unauthorized and NotFound.
        """
        if self._leased and bearer_token(header(request, b"authorization")) is None:
            raise no_lease_token()
        admit = look_up_holder if self._leased else None
        body = await read_body(request, self._max_bytes, partial(body_too_large, self._max_bytes), admit)
        if not body and self._absent is not None:
            return self._absent
        if not is_json(kind := content_type(request)) and kind not in UNDECLARED:
            raise unsupported(kind, JSON)
        if len(body) > SMALL_BODY_BYTES and _check_parts(body) > MANY_PARTS:
            context: Context = request.app.state.context
            return await context.threads.reading(self._message, body)
        return self._message(body)

    def _message(self, body: bytes) -> Message:
        """Raises BadRequest, Invalid. By the `json` module first: pydantic's own parser refuses lone surrogates."""
        try:
            document = _DECODER.decode(body.decode("utf-8-sig", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body cannot be read as JSON: {error}") from error
        try:
            return self._kind.model_validate(document)
        except ValidationError as error:
            raise Invalid([self._with_advice(one) for one in mistakes_of(error)]) from error

    def _with_advice(self, mistake: Mistake) -> Mistake:
        """For an unknown field of the body itself, what to do or write instead; any other mistake unchanged."""
        if mistake.message != UNKNOWN or len(mistake.path) != 1:
            return mistake
        name = str(mistake.path[0])
        advice = self._instead.get(name) or instead_of(name, [*self._kind.model_fields], "known here")
        return Mistake(mistake.path, f"{UNKNOWN}; {advice}")


def _check_parts(body: bytes) -> int:
    """Return about how many names and values there are, at most four for each that there is. Raises TooLarge."""
    pieces = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', 2 * MAX_PARTS)
    outside_texts = b"".join(pieces[::2])
    parts = sum(outside_texts.count(mark) for mark in (b",", b":", b"[", b"{"))
    if parts > MAX_PARTS or len(pieces) > 2 * MAX_PARTS:
        raise TooLarge(f"the body of this call may have at most {MAX_PARTS} names and values", max_parts=MAX_PARTS)
    return parts
