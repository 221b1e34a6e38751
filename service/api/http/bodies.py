"""Request bodies as dependencies of routes: they are read after the caller is admitted, and within their limits."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ValidationError

from search.mistakes import mistakes_of, shortened
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx
from service.api.http.forms import MAX_SPEC_BYTES, read_form, spec_too_large
from service.api.http.guard import body_too_large
from service.api.http.message_size import check_parts, read_json
from service.errors import Invalid, TooLarge, UnsupportedMediaType
from service.operations.packages.storage import CheckedPackage, check_package, package_too_large, packed
from service.runtime.context import Context
from service.specification.documents import read_document
from service.specification.parser import parse_spec

JSON = "application/json"
YAML = "application/yaml"
MERGE_PATCH = "application/merge-patch+json"

_UNDECLARED = {"", "application/x-www-form-urlencoded", "application/octet-stream", "text/plain"}
"""What clients send for a body of which they know nothing; the second is that of `curl -d`."""
_YAML_TYPES = {YAML, "application/x-yaml", "application/vnd.yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml"}

Message = TypeVar("Message", bound=BaseModel)


LARGE_BYTES = 100_000
"""A worker process reads what is larger, because reading takes about a second for each megabyte."""
LARGE_PACKAGE_BYTES = 1_000_000
"""As `LARGE_BYTES`, of packages."""

MAX_MESSAGE_BYTES = 4_000_000
SMALL_MESSAGE_BYTES = 20_000
MANY_PARTS = 2_000
"""A message with more names and values is read in a thread, because the event loop would wait for it."""


@dataclass(frozen=True)
class DocumentBody:
    """A document that is not read yet."""

    content: bytes
    is_json: bool


@dataclass(frozen=True)
class Submission:
    """A spec, and the code that was sent with it."""

    document: Any
    package: CheckedPackage | None = None


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
        if not _is_json(kind := _content_type(request)) and kind not in _UNDECLARED:
            raise _unsupported(kind, JSON)
        if len(body) > SMALL_MESSAGE_BYTES and check_parts(body) > MANY_PARTS:
            context: Context = request.app.state.context
            return await context.threads.reading(self._message, body)
        return self._message(body)

    def _message(self, body: bytes) -> Message:
        try:
            return self._kind.model_validate(read_json(body))
        except ValidationError as error:
            raise Invalid(mistakes_of(error)) from error


async def read_body(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> bytes:
    """Raises UnsupportedMediaType for a compressed body, and the error of `too_large` for more than `limit` bytes."""
    return b"".join([chunk async for chunk in _read_chunks(request, limit, too_large)])


async def _read_chunks(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> AsyncGenerator[bytes, None]:
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise UnsupportedMediaType(f"the body of this call cannot be in {shortened(coding)}; send it without a coding")
    if int(request.headers.get("content-length") or 0) > limit:
        raise too_large()
    read = 0
    async for chunk in request.stream():
        read += len(chunk)
        if read > limit:
            raise too_large()
        yield chunk


async def _unread_document(request: Request) -> DocumentBody:
    return await _document_body(request, MAX_SPEC_BYTES, spec_too_large)


async def _document_body(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> DocumentBody:
    kind = _content_type(request)
    if not (_is_json(kind) or kind in _YAML_TYPES or kind in _UNDECLARED):
        raise _unsupported(kind, f"{JSON} or {YAML}")
    body = await read_body(request, limit, too_large)
    return DocumentBody(body, _is_json(kind))


class JsonOrYaml:
    """A dependency that reads a document.

    `check` raises Invalid for documents that the route refuses anyway. It runs where a large document is read: in a
    worker process.
    """

    def __init__(self, check: Callable[[Any], object] | None = None, max_bytes: int = MAX_SPEC_BYTES) -> None:
        self._check = check
        self._max_bytes = max_bytes

    async def __call__(self, request: Request, context: Ctx) -> Any:
        body = await _document_body(request, self._max_bytes, partial(body_too_large, self._max_bytes))
        return await self.read(request, context, body)

    async def read(self, request: Request, context: Context, body: DocumentBody) -> Any:
        if len(body.content) > LARGE_BYTES:
            return await computed(request, context.compute, _read_and_check, body, self._check)
        return await run_in_threadpool(read_document, body.content, is_json=body.is_json)


def _read_and_check(body: DocumentBody, check: Callable[[Any], object] | None) -> Any:
    document = read_document(body.content, is_json=body.is_json)
    if check is not None:
        check(document)
    return document


_SPEC = JsonOrYaml(parse_spec)


async def _submission(request: Request, context: Ctx) -> Submission:
    if _content_type(request) != "multipart/form-data":
        return Submission(await _SPEC(request, context))
    limit = context.settings.max_package_bytes
    chunks = _read_chunks(request, limit + MAX_SPEC_BYTES, partial(package_too_large, limit))
    spec, code = await read_form(request.headers["content-type"], chunks)
    document = await _SPEC.read(request, context, DocumentBody(spec, is_json=False))
    if not code:
        return Submission(document)
    filename, content = await run_in_threadpool(packed, code)
    return Submission(document, await checked_package(request, context, filename, content))


async def checked_package(request: Request, context: Context, filename: str, body: bytes) -> CheckedPackage:
    """Raises Invalid, TooLarge."""
    check = partial(check_package, filename, body, context.settings.max_package_bytes)
    is_large = len(body) > LARGE_PACKAGE_BYTES
    name, files = await (computed(request, context.compute, check) if is_large else run_in_threadpool(check))
    return CheckedPackage(name, body, files)


def _content_type(request: Request) -> str:
    """Without its parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_json(kind: str) -> bool:
    return kind == JSON or kind.endswith("+json")


def _unsupported(kind: str, wanted: str) -> UnsupportedMediaType:
    return UnsupportedMediaType(f"the body of this call cannot be {shortened(kind)}; send it as {wanted}")


UnreadDocument = Annotated[DocumentBody, Depends(_unread_document)]
SpecAndCode = Annotated[Submission, Depends(_submission)]
