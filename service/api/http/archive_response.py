"""Sends an archive, or the range of it that a request asks for (RFC 9110, section 14)."""

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import Header
from starlette.types import Receive, Scope, Send

from service.api.http.security.revocation import RevocableStream
from service.errors import RangeNotSatisfiable, StorageUnavailable
from service.operations.checkpoints.folder_archive import FolderArchive
from service.runtime.context import Context

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/x-tar"

Range = Annotated[
    str | None,
    Header(alias="Range", description="`bytes=FIRST-` or `bytes=FIRST-LAST`: only these bytes; all else is ignored"),
]
IfRange = Annotated[
    str | None, Header(description="the `ETag` of the earlier answer: if it is another now, all bytes are sent")
]

_CONTENT: dict[str, Any] = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
_TEXT: dict[str, Any] = {"type": "string"}
_ETAG = {"ETag": {"description": "the same as long as the files are", "schema": _TEXT}}
WHOLE: dict[str, Any] = {"content": _CONTENT, "headers": _ETAG}
PART: dict[str, Any] = {
    "description": "The bytes of the range",
    "content": _CONTENT,
    "headers": _ETAG | {"Content-Range": {"description": "`bytes FIRST-LAST/SIZE`", "schema": _TEXT}},
}


class ArchiveStream(RevocableStream):
    """Cut off when a file cannot be read. The client sees that bytes are missing.

    It gives up `place`, its own among the simultaneous downloads, at its end.
    """

    def __init__(self, place: ExitStack, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            try:
                await super().__call__(scope, receive, send)
            except* StorageUnavailable as group:
                logger.warning("%s is cut off: %s", scope["path"], _first(group))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def archive_response(
    context: Context,
    open_archive: Callable[[], FolderArchive],
    range_header: str | None,
    if_range: str | None,
) -> ArchiveStream:
    """Open the archive in a thread, and send it. Raises Busy, RangeNotSatisfiable, and what opening it raises."""
    context.downloads.check()
    with ExitStack() as place:
        place.enter_context(context.downloads.one())
        archive = await context.threads.downloading(open_archive)
        wanted = _wanted(range_header, archive.size) if if_range in {None, archive.etag} else None
        start, stop = wanted or (0, archive.size)
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Disposition": f'attachment; filename="{archive.name}.tar"',
            "Content-Length": str(stop - start),
            "ETag": archive.etag,
        }
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{archive.size}"
        body = _pieces(context, archive, start, stop)
        return ArchiveStream(place.pop_all(), body, 206 if wanted else 200, headers, MEDIA_TYPE)


async def _pieces(context: Context, archive: FolderArchive, start: int, stop: int) -> AsyncIterator[bytes]:
    pieces = archive.read(start, stop)
    while piece := await context.threads.downloading(next, pieces, b""):
        yield piece


def _wanted(header: str | None, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last; None for all bytes. Raises RangeNotSatisfiable."""
    found = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", (header or "").strip())
    if found is None:
        return None
    start, last = int(found[1]), int(found[2] or size - 1)
    if start >= size:
        raise RangeNotSatisfiable(size)
    return (start, min(last + 1, size)) if last >= start else None
