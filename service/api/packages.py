"""`/v1/packages`: the user's code."""

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from service.api.http.bodies import read_body
from service.api.http.dependencies import Ctx
from service.api.http.problems import responses
from service.api.views.rows import RowView
from service.operations.packages.storage import find_package, package_too_large, store_package

router = APIRouter(prefix="/v1/packages", tags=["packages"])

BODY = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}, "required": True}


class PackageView(RowView):
    id: str
    filename: str
    size: int
    files: list[str]
    created_at: datetime


@router.post("", status_code=201, responses=responses(413, 422, 507), openapi_extra={"requestBody": BODY})
async def post_package(
    request: Request,
    context: Ctx,
    filename: Annotated[str, Query(max_length=200, description="train.py for a single Python file")] = "package.zip",
) -> PackageView:
    """Stores a zip, or one .py file. The same bytes give the same id."""
    settings = context.settings
    body = await read_body(request, settings.max_package_bytes, partial(package_too_large, settings))
    return PackageView.of(await run_in_threadpool(store_package, context, body, filename))


@router.get("/{package}", response_class=Response, responses=responses(404))
def get_package(package: str, context: Ctx) -> Response:
    """The bytes as they were sent."""
    row, body = find_package(context, package)
    headers = {"Content-Disposition": f'attachment; filename="{row.filename}"'}
    return Response(body, media_type="application/octet-stream", headers=headers)
