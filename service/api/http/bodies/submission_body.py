"""The body of a submission: a specification, and the code that may come with it."""

from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from service.api.http.bodies.body_reader import content_type, read_chunks
from service.api.http.bodies.document_body import DocumentBody, JsonOrYaml
from service.api.http.bodies.forms import MAX_SPEC_BYTES, read_form
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx
from service.operations.experiments.submission import Submission
from service.operations.packages.package_store import CheckedPackage, check_package, package_too_large, packed
from service.runtime.context import Context
from service.specification.parser import parse_spec

LARGE_PACKAGE_BYTES = 1_000_000
"""A worker process checks what is larger, because that takes long."""


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


SpecAndCode = Annotated[Submission, Depends(_submission)]
