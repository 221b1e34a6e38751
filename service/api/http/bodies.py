"""Request bodies as dependencies of routes, read within their limits."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from search.mistakes import Mistake
from service.api.http.dependencies import Ctx
from service.errors import BadRequest, Invalid, TooLarge
from service.operations.packages.storage import package_too_large
from service.specification.documents import read_document

MAX_SPEC_BYTES = 5_000_000
_PARTS = {"spec", "code"}


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
    body = await read_body(request, MAX_SPEC_BYTES, _spec_too_large)
    is_json = "json" in request.headers.get("content-type", "")  # `curl -d` names neither JSON nor YAML
    return await run_in_threadpool(read_document, body, is_json=is_json)


async def _submission(request: Request, context: Ctx) -> Submission:
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return Submission(await _document(request))
    limit = context.settings.max_package_bytes + MAX_SPEC_BYTES
    chunks = _read_chunks(request, limit, partial(package_too_large, context.settings))
    try:
        form = await MultiPartParser(request.headers, chunks).parse()
    except MultiPartException as error:
        raise BadRequest(f"the multipart body cannot be read: {error.message}") from error
    try:
        return await _read_form(form)
    finally:
        await form.close()


async def _read_form(form: FormData) -> Submission:
    files = [part for part in form.getlist("code") if isinstance(part, UploadFile)]
    names = [file.filename for file in files]
    mistakes = [Mistake((name,), "is not known; known here: spec, code") for name in form if name not in _PARTS]
    mistakes += [Mistake(("code",), f"{name!r} is sent twice") for name in {n for n in names if names.count(n) > 1}]
    spec = form.get("spec")
    if spec is None:
        mistakes.append(Mistake(("spec",), "is required: curl -F spec=@experiment.yaml -F code=@train.py"))
    if mistakes or spec is None:
        raise Invalid(mistakes)
    body = spec.encode() if isinstance(spec, str) else await spec.read()
    document = await run_in_threadpool(read_document, body, is_json=False)
    code = [(PurePosixPath(file.filename or "train.py").name, await file.read()) for file in files]
    return Submission(document, tuple(code))


def _spec_too_large() -> TooLarge:
    return TooLarge(f"a spec may have {MAX_SPEC_BYTES / 1e6:g} MB", max_bytes=MAX_SPEC_BYTES)


JsonOrYaml = Annotated[Any, Depends(_document)]
SpecAndCode = Annotated[Submission, Depends(_submission)]
