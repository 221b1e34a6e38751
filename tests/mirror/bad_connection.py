"""A connection to MLflow that fails as a test wants."""

import errno
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import requests

API, ARTIFACTS = "/api/2.0/mlflow/", "/api/2.0/mlflow-artifacts/"


class Call(NamedTuple):
    path: str
    body: dict[str, Any]


class BadConnection:
    """`failure` is given each call, and returns what the client gets instead of MLflow's answer.

    `lost_answer` does so after MLflow has executed the call. `foreign_answer` returns what a proxy answers, if it does.
    """

    def __init__(self) -> None:
        self.failure: Callable[[Call], Exception | None] = lambda _: None
        self.lost_answer: Callable[[Call], Exception | None] = lambda _: None
        self.foreign_answer: Callable[[Call], requests.Response | None] = lambda _: None
        self.calls: list[str] = []

    def send(self, call: Callable[[], requests.Response], url: str, options: dict[str, Any]) -> requests.Response:
        path = url.partition(API)[2] or url.partition(ARTIFACTS)[2]
        if path in {"", "server-info"}:
            return call()
        self.calls.append(path)
        described = Call(path, options.get("json") or options.get("params") or {})
        _raise(self.failure(described))
        if (foreign := self.foreign_answer(described)) is not None:
            foreign.url = url
            return foreign
        answer = call()
        _raise(self.lost_answer(described))
        return answer


def _raise(failure: Exception | None) -> None:
    if failure is not None:
        raise failure


def server_error(status: int = 503) -> Exception:
    """As requests raises it after an answer with the status."""
    return requests.exceptions.RetryError(f"too many {status} error responses")


def gateway_timeout() -> Exception:
    return server_error(504)


def answer(status: int, reason: str, body: str) -> requests.Response:
    response = requests.Response()
    response.status_code, response.reason, response._content, response.encoding = status, reason, body.encode(), "utf-8"
    return response


def timeout() -> Exception:
    """As requests raises it, of urllib3, of the socket's error."""
    return caused_by(TimeoutError("timed out"))


def refused() -> Exception:
    return caused_by(ConnectionRefusedError(111, "Connection refused"))


def unknown_name() -> Exception:
    return caused_by(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))


def no_route() -> Exception:
    return caused_by(OSError(errno.EHOSTUNREACH, "No route to host"))


def no_connection_in_time() -> Exception:
    """As from behind a firewall that drops packets."""
    return requests.ConnectTimeout("timed out")


@contextmanager
def answering(status: int, calls: list[str], retry_after: str | None = None, body: bytes = b"") -> Iterator[str]:
    """A server that answers each call with the status; yields its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            calls.append(self.path.partition(API)[2].partition("?")[0])
            self.send_response(status)
            if retry_after is not None:
                self.send_header("Retry-After", retry_after)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def caused_by(cause: Exception) -> Exception:
    """The cause is raised, as by a socket: so it has what is handled then as its context."""
    error = requests.ConnectionError("Max retries exceeded")
    with suppress(type(cause)):
        raise cause
    error.__cause__ = cause
    return error


def failing_often(rate: float, seed: int = 7) -> Callable[[Call], Exception | None]:
    numbers = random.Random(seed)  # noqa: S311 - no secret
    return lambda _: server_error() if numbers.random() < rate else None


def every(count: int) -> Callable[[Call], Exception | None]:
    """Each so many calls, one takes too long."""
    calls = [0]

    def failure(_: Call) -> Exception | None:
        calls[0] += 1
        return timeout() if calls[0] % count == 0 else None

    return failure


def with_more_metrics_than(most: int, failure: Callable[[], Exception] = timeout) -> Callable[[Call], Exception | None]:
    return lambda call: failure() if len(call.body.get("metrics") or ()) > most else None


def at(path: str, failure: Callable[[], Exception] = server_error) -> Callable[[Call], Exception | None]:
    return lambda call: failure() if call.path == path else None
