"""An S3 server (moto) on a free port, which can be made to fail."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "models"
DELAY_SECONDS, FAILS_EVERY = 0.03, 5

Respond = Callable[..., Any]


class S3Server:
    """`is_away`: every call is answered with 503, as by an overloaded S3; `is_slow`: only each fifth, after a while.

    `refuses_reading` says for each file that is read, by its path, whether that is answered with 503, and so is every
    deletion before `deletes_from`, of `time.monotonic`. `denies_writing` says for the parts of a file (method PUT)
    and for their completion (POST), by the path, whether they are answered with 403, which pyarrow does not repeat.
    `page(method, path)` is what a gateway in front of the server answers with 200 in its place; None: the call passes.
    `answers` has a line for each answer to another process.
    """

    def __init__(self) -> None:
        self.is_away = self.is_slow = False
        self.refuses_reading: Callable[[str], bool] | None = None
        self.denies_writing: Callable[[str, str], bool] | None = None
        self.page: Callable[[str, str], bytes | None] | None = None
        self.deletes_from = 0.0
        self.refused = 0
        self.answers: list[str] = []
        self._calls = itertools.count(1)
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self._server.port}")

    @property
    def storage(self) -> str:
        """The URI of a folder of the bucket."""
        endpoint = quote(f"127.0.0.1:{self._server.port}", safe="")
        return f"s3://{BUCKET}/runs?scheme=http&region=us-east-1&endpoint_override={endpoint}"

    @contextmanager
    def serving(self) -> Iterator["S3Server"]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            self._http.put(f"/{BUCKET}").raise_for_status()
            yield self
        finally:
            self._http.close()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def names(self) -> list[str]:
        """The files in the bucket; without the hidden ones, which check whether it can be written."""
        listed = self._http.get(f"/{BUCKET}", params={"list-type": "2"}).raise_for_status().text
        names = [part.partition("</Key>")[0] for part in listed.split("<Key>")[1:]]
        return [name for name in names if not name.endswith("/") and "/." not in name]

    def _answer(self, environ: dict[str, Any], start_response: Respond) -> Iterable[bytes]:
        call = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"

        def respond(status: str, *others: Any) -> Any:
            if not _is_from_test(environ):
                self.answers.append(f"{time.monotonic():.3f} {call} {status}")
            return start_response(status, *others)

        if (page := self._page_for(environ)) is not None:
            is_chunked = environ.get("wsgi.input_terminated")
            environ["wsgi.input"].read(-1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0))
            respond("200 OK", [("Content-Type", "text/html"), ("Content-Length", str(len(page)))])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [page]
        if self._denies(environ):
            respond("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access denied.</Message></Error>"]
        if self._refuses(environ):
            self.refused += 1
            respond("503 Service Unavailable", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"]
        answer: Iterable[bytes] = self._moto(environ, respond)
        return answer

    def _page_for(self, environ: dict[str, Any]) -> bytes | None:
        if self.page is None or _is_from_test(environ):
            return None
        return self.page(environ["REQUEST_METHOD"], environ["PATH_INFO"])

    def _denies(self, environ: dict[str, Any]) -> bool:
        if self.denies_writing is None or "uploadId" not in environ.get("QUERY_STRING", ""):
            return False
        return self.denies_writing(environ["REQUEST_METHOD"], environ["PATH_INFO"])

    def _refuses(self, environ: dict[str, Any]) -> bool:
        is_read = environ["REQUEST_METHOD"] == "GET" and not environ.get("QUERY_STRING")
        if is_read and self.refuses_reading is not None:
            return self.refuses_reading(environ["PATH_INFO"])
        deletes = environ["REQUEST_METHOD"] == "DELETE" or "delete" in environ.get("QUERY_STRING", "")
        if deletes and time.monotonic() < self.deletes_from:
            return True
        if not self.is_slow or _is_from_test(environ):
            return self.is_away
        time.sleep(DELAY_SECONDS)
        return self.is_away or next(self._calls) % FAILS_EVERY == 0


def _is_from_test(environ: dict[str, Any]) -> bool:
    return str(environ.get("HTTP_USER_AGENT", "")).startswith("python-httpx")
