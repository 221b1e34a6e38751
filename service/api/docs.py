"""`/openapi.json`, and `/docs`, a page that shows it. The page loads nothing from other hosts."""

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from service.api.http.routes import Route

router = APIRouter(include_in_schema=False, route_class=Route)

FOLDER = Path(__file__).parent / "swagger_ui"

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Asset(StrEnum):
    """The files of the page, which are in `FOLDER`."""

    SCRIPT = "swagger-ui-bundle.js"
    STYLE = "swagger-ui.css"
    START = "page.js"


@router.get("/openapi.json")
def get_openapi(request: Request) -> Response:
    document: dict[str, Any] = request.app.openapi()
    return JSONResponse(document)


@router.get("/docs")
def get_docs() -> Response:
    return Response(_content("page.html"), media_type="text/html", headers={"Content-Security-Policy": CONTENT_POLICY})


@router.get("/docs/{asset}")
def get_asset(asset: Asset) -> Response:
    media_type = "text/css" if asset is Asset.STYLE else "text/javascript"
    return Response(_content(asset), media_type=media_type, headers={"Cache-Control": "max-age=3600"})


@cache
def _content(name: str) -> bytes:
    return (FOLDER / name).read_bytes()
