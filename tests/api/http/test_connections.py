"""Unusual requests on a connection: offers of another protocol, long URLs, several requests before an answer."""

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import Api, a_spec
from tests.timeouts import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]

HTTP2 = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
"""As `curl --http2` and the HTTP client of Java offer it."""


@contextmanager
def connected(service: Api) -> Iterator[socket.socket]:
    address = service.http.base_url.host, service.http.base_url.port
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as connection:
        yield connection


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """The status and body of the next answer."""
    with connection.makefile("rb", buffering=0) as stream:
        status = int(stream.readline().split()[1])
        lines = iter(stream.readline, b"\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        return status, stream.read(int(headers.get(b"content-length", 0))) or b""


def request(method: bytes, path: bytes, body: bytes = b"", more: bytes = b"") -> tuple[bytes, bytes]:
    head = b"%b %b HTTP/1.1\r\nHost: 127.0.0.1\r\n" % (method, path)
    length = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body) if body else b""
    return head + length + more + b"\r\n", body


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("more", [HTTP2, b"Connection: upgrade\r\nUpgrade: websocket\r\n"])
def test_the_body_beside_an_offer_of_another_protocol_is_read(service: Api, more: bytes, is_split: bool) -> None:
    head, body = request(b"POST", b"/v1/experiments", json.dumps(a_spec(name="offered")).encode(), more)
    with connected(service) as connection:
        for part in (head, body) if is_split else (head + body,):
            connection.sendall(part)
        status, created = answer(connection)
        assert (status, json.loads(created)["name"]) == (201, "offered")
        connection.sendall(request(b"GET", b"/v1/experiments/offered")[0])
        assert answer(connection)[0] == 200


def test_the_body_beside_an_offer_is_not_taken_for_a_request(service: Api) -> None:
    service.create(name="kept")
    inner = request(b"POST", b"/v1/experiments/kept/pause")[0]
    head, body = request(b"POST", b"/v1/experiments", inner, HTTP2 + b"Expect: 100-continue\r\n")
    with connected(service) as connection:
        connection.sendall(head)
        assert answer(connection)[0] == 100
        connection.sendall(body)
        assert answer(connection)[0] == 400  # the body is no document
        connection.sendall(request(b"GET", b"/v1/experiments/kept")[0])
        assert json.loads(answer(connection)[1])["status"] == "running"


def test_requests_that_follow_each_other_may_all_offer_another_protocol(service: Api) -> None:
    with connected(service) as connection:
        connection.sendall(request(b"GET", b"/healthz", more=HTTP2)[0] * 500)
        assert {answer(connection)[0] for _ in range(500)} == {200}


def test_an_offer_keeps_the_connection_from_nothing_else(service: Api) -> None:
    with connected(service) as connection:
        more = b"Connection: close, Upgrade\r\nUpgrade: h2c\r\n"
        connection.sendall(request(b"GET", b"/healthz", more=more)[0])
        assert answer(connection)[0] == 200
        assert connection.recv(1) == b""


def test_a_url_that_is_too_long_is_refused(service: Api) -> None:
    with connected(service) as connection:
        connection.sendall(request(b"GET", b"/v1/experiments/" + b"x" * 65_600)[0])
        status, problem = answer(connection)
        assert (status, json.loads(problem)["type"]) == (431, "urn:paceline:error:header-too-large")


def test_a_fault_in_a_second_request_is_not_the_answer_to_the_first(
    service: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does the first one, whose caller has lost the connection, take a trial."""
    caplog.set_level(logging.ERROR)
    claim = {"request_id": "one", "nodes": [{"total": {"CPU": 8.0}, "free": {"CPU": 8.0}}], "wait_seconds": 20}
    first = b"".join(request(b"POST", b"/v1/agents/here/claim", json.dumps(claim).encode()))
    second = request(b"POST", b"/v1/experiments", more=b"Transfer-Encoding: chunked\r\n")[0] + b"no number\r\n"
    with connected(service) as connection:
        connection.sendall(first + second)
        assert connection.recv(1) == b""
    name = service.create(trainer={"kind": "torch", "entrypoint": "train:train_fn"})["name"]
    assert service.claim("there", wait_seconds=0)
    assert service.get(f"/v1/experiments/{name}")["counts"]["running"] == 1
    assert caplog.records == []
