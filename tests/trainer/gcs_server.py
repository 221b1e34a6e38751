"""A server of Google Cloud Storage's JSON API on a free port, as far as pyarrow uses it, which can be made to fail."""

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import MIMEPart
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import quote, unquote

from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

BUCKET = "models"
OBJECTS = f"/storage/v1/b/{BUCKET}/o"
UPLOADS = f"/upload{OBJECTS}"
PAGE_LENGTH = 3
"""Files in a page of a listing. 1,000 in Google's."""

RETRY_LIMIT_SECONDS = 5


@dataclass
class StoredObject:
    name: str
    content: bytes
    metadata: dict[str, str]
    generation: int
    updated: str = field(default_factory=lambda: datetime.now(UTC).isoformat().replace("+00:00", "Z"))

    def as_json(self) -> dict[str, Any]:
        number = str(self.generation)
        times = {"timeCreated": self.updated, "updated": self.updated}
        sizes = {"size": str(len(self.content)), "generation": number, "metageneration": "1"}
        named = {"kind": "storage#object", "id": f"{BUCKET}/{self.name}/{number}", "name": self.name, "bucket": BUCKET}
        return {**named, **sizes, **times, "metadata": self.metadata}


class GcsServer:
    """`is_away`: every call is answered with 503; `is_slow`: each fifth.

    `page(method, path)` is what a gateway answers with 200 in its place; None: the call passes. `denies(method, path)`
    says which calls are answered with 403, which pyarrow does not repeat. `calls` has a line for each call.
    """

    page: Callable[[str, str], bytes | None] | None
    denies: Callable[[str, str], bool]

    def __init__(self) -> None:
        self.make_whole()
        self.refused = 0
        self.calls: list[str] = []
        self._objects: dict[str, StoredObject] = {}
        self._uploads: dict[str, tuple[str, bytearray]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
        self._server = make_server("127.0.0.1", 0, Request.application(self._answer), threaded=True)

    def make_whole(self) -> None:
        """From now on it answers each call."""
        self.is_away = self.is_slow = False
        self.page, self.denies = None, lambda _method, _path: False

    @property
    def storage(self) -> str:
        """The URI of a folder of the bucket, whose absence is soon noticed."""
        return self.storage_with(RETRY_LIMIT_SECONDS)

    def storage_with(self, retry_limit_seconds: int) -> str:
        """Return the URI where pyarrow repeats a refused call for so long."""
        endpoint = quote(f"127.0.0.1:{self._server.port}", safe="")
        query = f"scheme=http&endpoint_override={endpoint}&retry_limit_seconds={retry_limit_seconds}"
        return f"gs://anonymous@{BUCKET}/runs?{query}"

    @contextmanager
    def serving(self) -> Iterator["GcsServer"]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def names(self) -> list[str]:
        """The files in the bucket; without the hidden ones, which check whether it can be written."""
        return [name for name in sorted(self._objects) if not name.endswith("/") and "/." not in name]

    def all_names(self) -> list[str]:
        """All objects in the bucket, with the empty ones that stand for directories."""
        return sorted(self._objects)

    def _answer(self, request: Request) -> Response:
        answer = self._respond(request, request.get_data())
        self.calls.append(f"{time.monotonic():.3f} {request.method} {request.full_path} {answer.status_code}")
        return answer

    def _respond(self, request: Request, body: bytes) -> Response:
        if self.page is not None and (page := self.page(request.method, request.path)) is not None:
            return Response(page, content_type="text/html")
        if self.denies(request.method, request.path):
            return Response("denied", 403)
        if self.is_away or (self.is_slow and next(self._numbers) % 5 == 0):
            self.refused += 1
            return Response("busy", 503)
        with self._lock:
            return self._serve(request, body)

    def _serve(self, request: Request, body: bytes) -> Response:
        if request.path == UPLOADS:
            return self._upload(request, body)
        if request.path == OBJECTS:
            return self._listing(request)
        if request.path.startswith(f"{OBJECTS}/"):
            return self._object(request, request.path.removeprefix(f"{OBJECTS}/"))
        return _json({"kind": "storage#bucket", "id": BUCKET, "name": BUCKET})

    def _object(self, request: Request, name: str) -> Response:
        found = self._objects.get(name)
        if found is None or request.args.get("generation", str(found.generation)) != str(found.generation):
            return Response("No such object", 404)
        if request.method == "DELETE":
            del self._objects[name]
            return Response(status=204)
        if request.args.get("alt") != "media":
            return _json(found.as_json())
        ranges = request.range.ranges if request.range else []
        start = ranges[0][0] if ranges else 0
        stop = len(found.content) if not ranges or ranges[0][1] is None else ranges[0][1]
        headers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(found.content)}"} if ranges else {}
        return Response(found.content[start:stop], 206 if ranges else 200, headers)

    def _listing(self, request: Request) -> Response:
        """If there is a delimiter, the object that stands for a directory is an item only if the caller wants those."""
        prefix, delimiter = request.args.get("prefix", ""), request.args.get("delimiter")
        names = [one for one in sorted(self._objects) if one.startswith(prefix)]
        if delimiter:
            ends = delimiter if request.args.get("includeTrailingDelimiter") == "true" else ""
            names = [one for one in names if delimiter not in one.removeprefix(prefix).removesuffix(ends)]
        names = [one for one in names if one > request.args.get("pageToken", "")]
        page = names[:PAGE_LENGTH]
        more = {"nextPageToken": page[-1]} if len(names) > len(page) else {}
        return _json({"kind": "storage#objects", "items": [self._objects[one].as_json() for one in page], **more})

    def _upload(self, request: Request, body: bytes) -> Response:
        name = unquote(request.args.get("name", ""))
        if request.args["uploadType"] == "multipart":
            header = f"Content-Type: {request.content_type}\r\n\r\n".encode()
            described, content = BytesParser(policy=HTTP).parsebytes(header + body).iter_parts()
            metadata = json.loads(described.get_content() or "{}").get("metadata", {})
            if request.args.get("ifGenerationMatch") == "0" and name in self._objects:
                return Response("exists", 412)
            return self._stored(name, _bytes_of(content), metadata)
        if request.method == "POST":
            upload = str(next(self._numbers))
            self._uploads[upload] = (name, bytearray())
            return Response(headers={"Location": f"{request.base_url}?uploadType=resumable&upload_id={upload}"})
        return self._go_on_with_upload(request.args["upload_id"], request.headers["Content-Range"], body)

    def _go_on_with_upload(self, upload: str, content_range: str, body: bytes) -> Response:
        name, content = self._uploads[upload]
        span, _, total = content_range.removeprefix("bytes ").partition("/")
        if span != "*":
            del content[int(span.partition("-")[0]) :]
            content += body
        if total.isdecimal() and int(total) == len(content):
            del self._uploads[upload]
            return self._stored(name, bytes(content), {})
        return Response(status=308, headers={"Range": f"bytes=0-{len(content) - 1}"} if content else {})

    def _stored(self, name: str, content: bytes, metadata: dict[str, str]) -> Response:
        self._objects[name] = StoredObject(name, content, metadata, next(self._numbers))
        return _json(self._objects[name].as_json())


def _bytes_of(part: MIMEPart) -> bytes:
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _json(value: dict[str, Any]) -> Response:
    return Response(json.dumps(value), content_type="application/json")
