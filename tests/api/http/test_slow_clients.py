"""Clients that send or read too slowly, or too much, lose their connection; all others are served."""

import logging
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from typing import ParamSpec

import httpx
import psutil
import pytest

from service.api.http.server import server_config
from service.api.http.server.connection_limits import ConnectionLimits
from service.settings import Settings
from tests.conftest import Api, running
from tests.timeouts import PATIENCE_SECONDS, wait_until

Arguments = ParamSpec("Arguments")

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]

REQUEST_SECONDS = 0.5
ATTEMPTS = 4
HEAD = b"POST /v1/experiments HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture
def strict(settings: Settings) -> Iterator[Api]:
    with running(replace(settings, request_seconds=REQUEST_SECONDS, stall_seconds=REQUEST_SECONDS)) as service:
        service.http.headers["Connection"] = "close"  # an idle connection is ended, perhaps when it is used again
        yield service


def tried_again(test: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """For what must be in time: a busy machine makes this client itself too slow, but not each time."""

    @wraps(test)
    def attempts(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        for _ in range(ATTEMPTS - 1):
            with suppress(AssertionError, OSError, httpx.HTTPError):
                return test(*arguments, **named)
        return test(*arguments, **named)

    return attempts


@contextmanager
def client(service: Api, *parts: bytes) -> Iterator[socket.socket]:
    address = service.http.base_url.host, service.http.base_url.port
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
        for part in parts:
            connection.sendall(part)
        yield connection


def whole_answer(connection: socket.socket) -> bytes:
    """All until the service closes the connection."""
    found = b""
    with suppress(ConnectionResetError):  # it had not read all that was sent
        while more := connection.recv(65536):
            found += more
    return found


@pytest.mark.parametrize(("sent", "status"), [
    (b"", b""),
    (b"\r\n", b"HTTP/1.1 408"),
    (b"NO HTTP\r\n\r\n", b"HTTP/1.1 400"),
    (b"GET /v1/exp", b"HTTP/1.1 408"),
    (HEAD, b"HTTP/1.1 408"),
    (HEAD + b"Content-Length: 100\r\n\r\n", b"HTTP/1.1 408"),
    (HEAD + b"Content-Length: 100\r\n\r\n{", b"HTTP/1.1 408"),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", b"HTTP/1.1 408"),
    (HEAD + b"Content-Length: 1\r\n\r\n[GET /v1/", b"HTTP/1.1 400"),
])  # fmt: skip
@tried_again
def test_half_sent_requests_are_ended(strict: Api, sent: bytes, status: bytes) -> None:
    with client(strict, sent) as connection:
        answer = whole_answer(connection)
    assert answer.startswith(status)
    assert (b"application/problem+json" in answer) is bool(status)


def test_a_header_that_comes_byte_by_byte_is_ended(strict: Api) -> None:
    with client(strict, HEAD) as connection, pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        drip(connection)


def drip(connection: socket.socket) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        connection.sendall(b"X: 1\r\n")
        time.sleep(REQUEST_SECONDS / 10)


@tried_again
def test_a_body_may_take_long_if_it_arrives_steadily(strict: Api) -> None:
    body = b'{"space": {"x": {"type": "float", "low": 0, "high": 1}}}'.ljust(6000)
    head = b"POST /v1/spaces/preview HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6000\r\n\r\n"
    with client(strict, head) as connection:
        for start in range(0, len(body), 500):
            connection.sendall(body[start : start + 500])
            time.sleep(REQUEST_SECONDS / 4)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@tried_again
def test_a_large_body_may_not_take_as_long_as_its_client_likes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_config, "ConnectionLimits", partial(ConnectionLimits, most_more_seconds=0.1))
    head = b"POST /v1/packages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2000000\r\n\r\n"
    with running(replace(settings, request_seconds=REQUEST_SECONDS)) as service, client(service, head) as connection:
        connection.settimeout(20)
        connection.sendall(b"x" * 1_000_000)
        assert whole_answer(connection).startswith(b"HTTP/1.1 408")


LEASE_CALLS = ["reports", "heartbeat", "logs", "finish"]


def lease_call(trial: str, call: str, token: str | None, length: int | None) -> bytes:
    """The header of a call; without a length, of a chunked one."""
    lines = [f"POST /v1/trials/{trial}/{call} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += ["Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize("call", LEASE_CALLS)
@pytest.mark.parametrize("sent", [b"", b"x"], ids=["nothing", "a byte"])
def test_nothing_is_read_of_a_lease_call_without_a_token(service: Api, call: str, sent: bytes) -> None:
    with client(service, lease_call("t-1", call, None, 3_000_000), sent) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("call", LEASE_CALLS)
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_a_large_body_is_read_of_the_holder_only(service: Api, call: str, chunked: bool) -> None:
    held = service.ask(service.create()["name"])
    assert held
    begun, length = b'{"text": "' + b"x" * 30_000, None if chunked else 3_000_000
    sent = b"%x\r\n%b\r\n" % (len(begun), begun) if chunked else begun
    for trial, status in ((held.trial, b"401"), ("t-1", b"404")):
        with client(service, lease_call(trial, call, "wrong", length), sent) as connection:
            assert connection.recv(65536).startswith(b"HTTP/1.1 " + status)
    error = {"kind": "user_error", "message": "no", "traceback": "x" * 90_000}
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": "x" * 900_000})
    held.finish("failed", error=error)
    held.finish("failed", error=error)


def test_large_bodies_that_wait_have_a_budget_together(service: Api) -> None:
    budget = service.app.state.body_budget
    budget.free_bytes = free = 4_000_000
    head = HEAD + b"Content-Length: 3900000\r\n\r\n"
    with client(service, head, b" " * 2_500_000):
        wait_until(lambda: budget.free_bytes == free - 2_500_000)
        with client(service, head, b" " * 2_500_000) as refused:
            answer = refused.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b":busy" in answer
        assert b"retry-after" in answer.lower()
        held = service.ask(service.create()["name"])
        assert held
        held.report(accuracy=0.5)
    wait_until(lambda: budget.free_bytes == free)
    service.post("/v1/packages", 201, params={"filename": "train.py"}, content=b"#" * 3_900_000)
    wait_until(lambda: budget.free_bytes == free)


def test_a_body_beside_a_stream_takes_nothing_of_the_budget(service: Api) -> None:
    """It is thrown away, and the stream may be open for days."""
    budget = service.app.state.body_budget
    name = service.create()["name"]
    budget.free_bytes = free = 4_000_000
    request = f"GET /v1/experiments/{name}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3000000\r\n\r\n"
    with client(service, request.encode(), b" " * 2_900_000) as stream:
        assert stream.recv(65536).startswith(b"HTTP/1.1 200")
        wait_until(lambda: budget.free_bytes == free)
        stream.sendall(b" " * 100_000)
        held = service.ask(name)
        assert held
        assert budget.free_bytes == free


@pytest.mark.parametrize("endless", [
    HEAD + b"X: " + b"x" * 100_000,
    HEAD + b"".join(b"X%d: x\r\n" % number for number in range(20_000)),
    b"GET /" + b"x" * 100_000,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: " + b"x" * 1_000_000,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 1_000_000,
], ids=["a value", "many fields", "a path", "a trailer", "a chunk's extension"])  # fmt: skip
def test_endless_headers_are_refused(service: Api, endless: bytes) -> None:
    with client(service) as connection:
        try:
            connection.sendall(endless)
            answer = whole_answer(connection)
        except OSError:  # the service has closed the connection before it had read all
            return
        assert answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
        assert b"application/problem+json" in answer


@tried_again
def test_streams_and_long_polls_are_not_requests_that_hang(strict: Api) -> None:
    name = strict.create()["name"]
    held = strict.ask(name)
    assert held
    path = f"GET /v1/experiments/{name}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    with client(strict, path) as stream:
        body = {"request_id": "one", "nodes": [], "wait_seconds": 4 * REQUEST_SECONDS}
        assert strict.http.post("/v1/agents/here/claim", json=body).status_code == 204
        assert held.call("heartbeat", body={"wait_seconds": 2 * REQUEST_SECONDS})["decision"] == "continue"
        held.report(accuracy=0.125)
        found = b""
        while b"0.125" not in found:
            more = stream.recv(65536)
            assert more
            found += more


def test_an_answer_that_is_not_read_is_ended(settings: Settings) -> None:
    package = b"import os\n" + b"#" * 40_000_000
    with running(settings) as service:
        stored = service.post("/v1/packages", 201, params={"filename": "train.py"}, content=package)
    with running(replace(settings, stall_seconds=REQUEST_SECONDS)) as service, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect((service.http.base_url.host, service.http.base_url.port))
        connection.sendall(f"GET /v1/packages/{stored['id']} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        select.select([connection], [], [], PATIENCE_SECONDS)
        wait_until(lambda: not is_served(connection))
        received = 0
        with suppress(ConnectionResetError):
            while more := connection.recv(2**20):
                received += len(more)
        assert received < 30_000_000


def is_served(connection: socket.socket) -> bool:
    """Whether this process, which is also the service, has the other end of the connection open."""
    _, port = connection.getsockname()
    return any(one.raddr and one.raddr.port == port for one in psutil.Process().net_connections("tcp"))


def test_connections_are_bounded_and_waiting_ones_make_room(settings: Settings) -> None:
    with running(replace(settings, max_connections=3)) as service, ExitStack() as stack:
        service.http.headers["Connection"] = "close"
        name = service.create()["name"]
        half = [stack.enter_context(client(service, b"GET /v1/")) for _ in range(5)]
        closed, _, _ = select.select(half, [], [], PATIENCE_SECONDS)
        assert whole_answer(closed[0]) == b""
        service.get("/healthz")
        request = f"GET /v1/experiments/{name}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        streams = [stack.enter_context(client(service, request)) for _ in range(3)]
        for stream in streams:
            assert stream.recv(12) == b"HTTP/1.1 200"
        with client(service, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as refused:
            answer = whole_answer(refused)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b":busy" in answer
        assert b"retry-after" in answer.lower()


@pytest.mark.parametrize("call", [
    b"POST /v1/experiments HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
    b"POST /v1/packages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nPK",
    HEAD.replace(b"experiments", b"trials/t-1/reports") + b"Authorization: Bearer x\r\nContent-Length: 1000\r\n\r\n{",
    b"POST /v1/agents/here/claim HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
    HEAD.replace(b"application/json", b"multipart/form-data; boundary=x") + b"Content-Length: 99\r\n\r\n--x\r\n",
])  # fmt: skip
def test_a_client_that_leaves_is_one_line_in_the_log(
    service: Api, call: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "service")
    with client(service, call):
        pass
    records = wait_until(lambda: [one for one in caplog.records if "client has gone" in one.getMessage()])
    service.get("/healthz")
    assert len(records) == 1
    assert not [one for one in caplog.records if one.exc_info]
