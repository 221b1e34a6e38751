"""`/v1/packages`: the user's code."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from search.mistakes import Mistake
from service.api.http.bodies.body_reader import read_body
from service.api.http.bodies.submission_body import checked_package
from service.api.http.dependencies import Ctx
from service.api.http.error_responses import error_responses
from service.api.http.routes import Route
from service.api.views.rows import RowView
from service.errors import Invalid, NotFound, TooMuchWork
from service.operations.packages.package_store import find_package, package_too_large, store_package

router = APIRouter(prefix="/v1/packages", tags=["packages"], route_class=Route)

_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_BODY = {
    "required": True,
    "description": "the bytes of the file; with `curl`, `--data-binary @code.zip`",
    "content": {"application/octet-stream": _BYTES, "application/zip": _BYTES},
}


class PackageView(RowView):
    """Stored code."""

    id: str
    """`sha256:` and the digest of the bytes"""
    filename: str
    """the name that it was sent with"""
    size: int
    """in bytes"""
    files: list[str]
    """the paths in it"""
    created_at: datetime
    """when it was first stored"""


@router.post("", status_code=201, responses=error_responses(TooMuchWork), openapi_extra={"requestBody": _BODY})
async def create_package(
    request: Request,
    response: Response,
    context: Ctx,
    filename: Annotated[str, Query(max_length=200, description="train.py for a single Python file")] = "package.zip",
) -> PackageView:
    """Stores a zip, or one .py file. The same bytes give the same id."""
    limit = context.settings.max_package_bytes
    body = await read_body(request, limit, partial(package_too_large, limit))
    if not body:
        raise Invalid([Mistake((), "the body is empty; send the file's bytes, as curl --data-binary @train.py does")])
    package = await checked_package(request, context, filename, body)
    row = await run_in_threadpool(store_package, context, package)
    response.headers["Location"] = f"/v1/packages/{row.id}"
    return PackageView.of(row)


@router.get(
    "/{package}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": _BYTES}}, **error_responses(NotFound)},
)
def get_package(
    package: Annotated[str, Path(description="the package's id, `sha256:` and 64 hex digits")], context: Ctx
) -> Response:
    """The bytes as they were sent."""
    found = find_package(context, package)
    headers = {"Content-Disposition": f'attachment; filename="{found.filename}"'}
    return Response(found.body, media_type="application/octet-stream", headers=headers)
