"""Followers of event streams share one reader, get each event once, and do not affect other calls."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest
from sqlalchemy import event

from service.runtime.events import event_feeds
from service.settings import Settings
from tests.conftest import Api, Held, running
from tests.timeouts import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def path_of(name: str) -> str:
    return f"/v1/experiments/{name}/events"


@contextmanager
def followers(service: Api, name: str, count: int) -> Iterator[list[socket.socket]]:
    """Open streams whose headers have been read."""
    address = service.http.base_url.host, service.http.base_url.port
    with ExitStack() as stack:
        streams = [
            stack.enter_context(socket.create_connection(address, timeout=PATIENCE_SECONDS)) for _ in range(count)
        ]
        for stream in streams:
            stream.sendall(f"GET {path_of(name)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        for stream in streams:
            assert stream.recv(16).startswith(b"HTTP/1.1 200")
        yield streams


def numbers_in(service: Api, name: str, *, last_event_id: int = 0) -> list[int]:
    """The numbers of all events of a stream that ends."""
    headers = {"Last-Event-ID": str(last_event_id)}
    with service.http.stream("GET", path_of(name), headers=headers) as response:
        return [int(line[4:]) for line in response.iter_lines() if line.startswith("id: ")]


def a_finished_experiment(service: Api, reports: int) -> str:
    name = str(service.create(limits={"max_trials": 1})["name"])
    held = service.ask(name)
    assert held
    batch = [{"sequence": number, "metrics": {"accuracy": number}} for number in range(reports)]
    for start in range(0, reports, 1000):
        held.call("reports", body={"reports": batch[start : start + 1000]})
    held.finish()
    return name


def test_a_long_history_arrives_whole_and_in_order(service: Api) -> None:
    """Longer than what a feed holds, so that its beginning is read from the database."""
    name = a_finished_experiment(service, 3 * event_feeds.TAIL_EVENTS)
    numbers = numbers_in(service, name)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 3 * event_feeds.TAIL_EVENTS
    assert numbers_in(service, name, last_event_id=777) == numbers[777:]
    assert numbers_in(service, name, last_event_id=numbers[-1] - 2) == numbers[-2:]
    assert numbers_in(service, name, last_event_id=numbers[-1]) == []


def test_followers_who_come_and_go_while_events_arrive_miss_none(service: Api) -> None:
    name = service.create(limits={"max_trials": 1})["name"]
    held = service.ask(name)
    assert held
    found: list[list[int]] = []

    def follow() -> None:
        numbers: list[int] = []
        while True:  # a new connection for every few events
            headers = {"Last-Event-ID": str(numbers[-1] if numbers else 0)}
            with service.http.stream("GET", path_of(name), headers=headers) as response:
                before = len(numbers)
                for line in response.iter_lines():
                    if line.startswith("id: "):
                        numbers.append(int(line[4:]))
                        if len(numbers) - before == 7:
                            break
                else:
                    found.append(numbers)
                    return

    threads = [threading.Thread(target=follow) for _ in range(5)]
    for thread in threads:
        thread.start()
    for number in range(60):
        held.report(accuracy=number)
    held.finish()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    newest = service.events(name)[-1]["seq"]
    assert found == [list(range(1, newest + 1))] * 5


@on_sqlite
def test_all_followers_share_one_read(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    reads: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM events" in statement:
            reads.append(statement)

    with followers(service, name, 50) as streams:
        event.listen(service.app.state.context.database.engine, "before_cursor_execute", note)
        held.report(accuracy=0.25)
        for stream in streams:
            read_until(stream, b"0.25")
    assert len(reads) <= 2


def read_until(stream: socket.socket, text: bytes) -> bytes:
    found = b""
    while text not in found:
        more = stream.recv(65536)
        assert more, found
        found += more
    return found


@on_sqlite
def test_a_follower_who_reads_nothing_is_cut_off_and_resumes(settings: Settings) -> None:
    with running(replace(settings, stall_seconds=0.5)) as service:
        name = service.create(limits={"max_trials": 1})["name"]
        held = service.ask(name)
        assert held
        with socket.socket() as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stream.connect((service.http.base_url.host, service.http.base_url.port))
            stream.sendall(f"GET {path_of(name)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            open_streams = service.app.state.context.followers
            wait_until(lambda: open_streams.count == 1)
            reports = much(held, until=lambda: open_streams.count == 0)
            got = until_cut(stream)
        held.finish()
    *whole, _cut = got.split(b"\n\n")
    seen = max(int(line[4:]) for event in whole for line in event.splitlines() if line.startswith(b"id: "))
    with running(settings) as service:  # which does not cut off this follower if the machine keeps it from reading
        numbers = numbers_in(service, name, last_event_id=seen)
    assert numbers == list(range(seen + 1, numbers[-1] + 1))
    assert numbers[-1] > reports


def until_cut(stream: socket.socket) -> bytes:
    """What is received until the connection ends, which must not look like the stream's end."""
    found = b""
    with suppress(ConnectionResetError):
        while more := stream.recv(65536):
            found += more
    assert not found.endswith(b"0\r\n\r\n")
    return found


def much(held: Held, until: Callable[[], bool]) -> int:
    """Report until the follower is gone: the kernel's buffers hold megabytes."""
    for number in range(5000):
        held.report(accuracy=number, note="x" * 20_000)
        if until():
            return number
    raise AssertionError("the follower was not cut off")


@on_sqlite
def test_followers_are_bounded(settings: Settings) -> None:
    with running(replace(settings, max_followers=2)) as service:
        name = service.create()["name"]
        held = service.ask(name)
        assert held
        with followers(service, name, 2):
            for path in (path_of(name), f"/v1/trials/{held.trial}/logs?follow=true"):
                with service.http.stream("GET", path) as refused:  # if it is not refused, it does not end
                    assert refused.status_code == 503
                    problem = json.loads(refused.read())
                assert (problem["type"], problem["max_followers"]) == ("urn:paceline:error:busy", 2)
            service.get(f"{path_of(name)}?follow=false")
            held.report(accuracy=1)
        held.finish()
        service.post(f"/v1/experiments/{name}/cancel")
        wait_until(lambda: is_admitted(service, name))  # once the service has noticed that they have left


def is_admitted(service: Api, name: str) -> bool:
    answer = service.http.get(path_of(name))
    assert answer.status_code == 200 or answer.json()["type"] == "urn:paceline:error:busy"
    return answer.status_code == 200
