"""Request bodies as dependencies of routes: they are read after the caller is admitted, and within their limits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from service.api.http.bodies.forms import MAX_SPEC_BYTES, read_form, spec_too_large
from service.api.http.bodies.json_body import (
    JSON,
    UNDECLARED,
    content_type,
    is_json,
    read_body,
    read_chunks,
    unsupported,
)
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx
from service.api.http.request_limits import body_too_large
from service.errors import TooLarge
from service.operations.packages.size_limit import package_too_large
from service.operations.packages.storage import CheckedPackage, check_package, packed
from service.runtime.context import Context
from service.specification.documents import read_document
from service.specification.parser import parse_spec

YAML = "application/yaml"
MERGE_PATCH = "application/merge-patch+json"

_YAML_TYPES = {YAML, "application/x-yaml", "application/vnd.yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml"}

LARGE_BYTES = 100_000
"""A worker process reads what is larger, because reading takes about a second for each megabyte."""
LARGE_PACKAGE_BYTES = 1_000_000
"""As `LARGE_BYTES`, of packages."""


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


async def _unread_document(request: Request) -> DocumentBody:
    return await _document_body(request, MAX_SPEC_BYTES, spec_too_large)


async def _document_body(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> DocumentBody:
    kind = content_type(request)
    if not (is_json(kind) or kind in _YAML_TYPES or kind in UNDECLARED):
        raise unsupported(kind, f"{JSON} or {YAML}")
    body = await read_body(request, limit, too_large)
    return DocumentBody(body, is_json(kind))


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
    if content_type(request) != "multipart/form-data":
        return Submission(await _SPEC(request, context))
    limit = context.settings.max_package_bytes
    chunks = read_chunks(request, limit + MAX_SPEC_BYTES, partial(package_too_large, limit))
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


UnreadDocument = Annotated[DocumentBody, Depends(_unread_document)]
SpecAndCode = Annotated[Submission, Depends(_submission)]
