"""Reading request bodies: within their limits, as what they say they are."""

from collections.abc import AsyncGenerator, Callable
from pathlib import PurePosixPath
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from service.errors import BadRequest, Invalid, Mistake, TooLarge
from service.operations.packages.archive import store_package, too_large, zip_of
from service.runtime.context import Context
from service.specification.documents import read_document

MAX_SPEC_BYTES = 5_000_000


async def read_limited(request: Request, limit: int, error: Callable[[], TooLarge]) -> bytes:
    return b"".join([chunk async for chunk in _limited(request, limit, error)])


async def read_submission(request: Request, context: Context) -> Any:
    """The spec's document; code sent with it is stored as a package and named in it."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await _read_form(request, context)
    return await read_either(request)


async def read_either(request: Request) -> Any:
    """A document of JSON or YAML."""
    content_type = request.headers.get("content-type", "")
    body = await read_limited(request, MAX_SPEC_BYTES, _spec_too_large)
    # curl -d sends neither's name.
    return await run_in_threadpool(read_document, body, is_json="json" in content_type)


async def _read_form(request: Request, context: Context) -> Any:
    limit = context.settings.max_package_bytes + MAX_SPEC_BYTES
    stream = _limited(request, limit, lambda: too_large(context))
    try:
        form = await MultiPartParser(request.headers, stream).parse()
    except MultiPartException as error:
        raise BadRequest(f"the multipart body cannot be read: {error.message}") from error
    try:
        _check_parts(form)
        document = await run_in_threadpool(read_document, await _spec_of(form), is_json=False)
        code = [part for part in form.getlist("code") if isinstance(part, UploadFile)]
        if code:
            await _put_package(document, code, context)
        return document
    finally:
        await form.close()


def _check_parts(form: FormData) -> None:
    wrong = [Mistake(name, "is not known; known here: spec, code") for name in form if name not in {"spec", "code"}]
    names = [part.filename for part in form.getlist("code") if isinstance(part, UploadFile)]
    wrong += [Mistake("code", f"{name!r} is sent twice") for name in {n for n in names if names.count(n) > 1}]
    if wrong:
        raise Invalid(wrong)


async def _spec_of(form: FormData) -> bytes:
    part = form.get("spec")
    if part is None:
        raise Invalid([Mistake("spec", "is needed: curl -F spec=@experiment.yaml -F code=@train.py")])
    return part.encode() if isinstance(part, str) else await part.read()


async def _put_package(document: Any, code: list[UploadFile], context: Context) -> None:
    trainer = document.setdefault("trainer", {}) if isinstance(document, dict) else None
    if not isinstance(trainer, dict):
        return  # the spec's own check says what is wrong
    if "package" in trainer:
        raise Invalid([Mistake("trainer.package", "leave it out when code is sent along, or send no code")])
    files = [(PurePosixPath(part.filename or "train.py").name, await part.read()) for part in code]
    filename, body = files[0] if len(files) == 1 else ("package.zip", zip_of(files))
    package = await run_in_threadpool(store_package, context, body, filename)
    trainer["package"] = package.id


async def _limited(request: Request, limit: int, error: Callable[[], TooLarge]) -> AsyncGenerator[bytes, None]:
    if int(request.headers.get("content-length") or 0) > limit:
        raise error()
    read = 0
    async for chunk in request.stream():
        read += len(chunk)
        if read > limit:
            raise error()
        yield chunk


def _spec_too_large() -> TooLarge:
    return TooLarge(f"a spec may have {MAX_SPEC_BYTES / 1e6:g} MB", max_bytes=MAX_SPEC_BYTES)
