"""An HTTP server with given answers, for what a service that works does not answer."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROBLEM = "application/problem+json"
CHUNK_BYTES, SHUTDOWN_POLL_SECONDS = 65_536, 0.01


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


LOST = Answer(status=0)
"""The connection ends without an answer."""


def answer(body: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode())


def problem(status: int, body: bytes | None = None, **members: object) -> Answer:
    """`body` replaces the members, for one that is cut off."""
    whole = json.dumps({"status": status, "title": "Refused"} | members).encode()
    return Answer(status, whole if body is None else body, {"Content-Type": PROBLEM})


@dataclass(frozen=True)
class Request:
    path: str
    headers: Message
    length: int


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[str, list[Request]]]:
    """Yield its URL, and the requests so far. The answers are given in turn; the last one again and again."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = left = int(self.headers.get("Content-Length", 0))
            while left:
                left -= len(self.rfile.read(min(left, CHUNK_BYTES)))
            requests.append(Request(self.path, self.headers, length))
            given = answers[min(len(requests), len(answers)) - 1]
            if given is LOST:
                return
            self.send_response(given.status)
            for name, value in given.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(SHUTDOWN_POLL_SECONDS,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()
