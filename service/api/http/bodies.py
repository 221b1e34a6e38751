"""Request bodies as dependencies of routes, read within their limits."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from service.api.http.dependencies import Ctx
from service.api.http.forms import MAX_SPEC_BYTES, read_form, spec_too_large
from service.errors import TooLarge
from service.operations.packages.storage import package_too_large
from service.specification.documents import read_document


@dataclass(frozen=True)
class Submission:
    """A spec, and the files (name, content) of the code that was sent with it."""

    document: Any
    code: tuple[tuple[str, bytes], ...] = ()


async def read_body(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> bytes:
    """Raises the error that `too_large` returns for a body of more than `limit` bytes."""
    return b"".join([chunk async for chunk in _read_chunks(request, limit, too_large)])


async def _read_chunks(request: Request, limit: int, too_large: Callable[[], TooLarge]) -> AsyncGenerator[bytes, None]:
    if int(request.headers.get("content-length") or 0) > limit:
        raise too_large()
    read = 0
    async for chunk in request.stream():
        read += len(chunk)
        if read > limit:
            raise too_large()
        yield chunk


async def _document(request: Request) -> Any:
    body = await read_body(request, MAX_SPEC_BYTES, spec_too_large)
    is_json = "json" in request.headers.get("content-type", "")  # `curl -d` names neither JSON nor YAML
    return await run_in_threadpool(read_document, body, is_json=is_json)


async def _submission(request: Request, context: Ctx) -> Submission:
    content_type = request.headers.get("content-type", "")
    if not content_type.startswith("multipart/form-data"):
        return Submission(await _document(request))
    limit = context.settings.max_package_bytes + MAX_SPEC_BYTES
    chunks = _read_chunks(request, limit, partial(package_too_large, context.settings))
    spec, code = await read_form(content_type, chunks)
    return Submission(await run_in_threadpool(read_document, spec, is_json=False), code)


JsonOrYaml = Annotated[Any, Depends(_document)]
SpecAndCode = Annotated[Submission, Depends(_submission)]
