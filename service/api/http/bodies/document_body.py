"""Bodies that are JSON or YAML documents, as dependencies of routes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from service.api.http.bodies.body_reader import (
    JSON,
    UNDECLARED,
    body_too_large,
    content_type,
    is_json,
    read_body,
    unsupported,
)
from service.api.http.bodies.forms import MAX_SPEC_BYTES, spec_too_large
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx
from service.errors import TooLarge
from service.runtime.context import Context
from service.specification.documents import read_document

YAML = "application/yaml"
MERGE_PATCH = "application/merge-patch+json"

_YAML_TYPES = {YAML, "application/x-yaml", "application/vnd.yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml"}

LARGE_BYTES = 100_000
"""A worker process reads what is larger, because reading takes about a second for each megabyte."""


@dataclass(frozen=True)
class DocumentBody:
    """A document that is not read yet."""

    content: bytes
    is_json: bool


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


UnreadDocument = Annotated[DocumentBody, Depends(_unread_document)]
