"""A followed log: each line once, also after the service was away."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import httpx
import pytest

from service.cli.client import client
from service.cli.client.answers import Refused, Unreachable
from service.cli.client.client import Client
from service.cli.terminal.followed_log import BOOKMARK_LINES, followed_log
from service.cli.terminal.outage import Outage

AWAY = Unreachable("http://127.0.0.1:8000", httpx.ConnectError("connection refused"))
PROXY = Refused({"status": 502, "detail": "bad gateway"})
DELETED = Refused({"status": 404, "type": "urn:paceline:error:not-found", "detail": "there is no trial t-1"})
RUNNING = {"status": "running", "attempts": [{"number": 1, "ended_at": None}]}
QUEUED: dict[str, Any] = {"status": "queued", "attempts": []}
ENDED = {"status": "completed", "attempts": [{"number": 1, "ended_at": "2026-01-01T00:00:00Z"}]}

TRIAL = {"id": "t-1", "number": 0, "params": {}, "values": {}, "checkpoint": None}

Part = str | Exception


@dataclass
class RestartingService:
    """A service with these logs, one for each time that it is asked, and these states of the trial."""

    logs_: list[list[Part]]
    trials: list[dict[str, Any] | Exception]
    asked: list[tuple[int | str | None, int | None]] = field(default_factory=list)
    tail_start: str | None = None
    """Where the tails begin, as a service says that knows it."""
    log_start: str | None = "1/0:8"
    """At first that of another log that the client has read."""

    def trial(self, _trial: str) -> dict[str, Any]:
        answer = self.trials.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def logs(
        self, _trial: str, _rank: int | None, since: int | str | None, attempt: int | None, *, follow: bool
    ) -> Iterator[str]:
        assert follow
        self.asked.append((since, attempt))
        parts = self.logs_.pop(0)
        if not parts or isinstance(parts[0], str):  # the head of the answer comes
            self.log_start = self.tail_start if isinstance(since, int) else None
            yield ""
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.terminal.followed_log.time.sleep", lambda _: None)


def followed(
    service: RestartingService, tail: int | None = None, said: list[str] | None = None, seconds: float = 60
) -> str:
    outage = Outage((said if said is not None else []).append, seconds)
    return "".join(followed_log(cast("Client", service), "t-1", None, tail, None, outage))


def test_lines_of_each_rank_come_once_although_the_ranks_come_in_another_order() -> None:
    first: list[Part] = ["[rank 0] a\n[rank 1] a", "\n[rank 0] b\n[rank 1] cut o", AWAY]
    second: list[Part] = ["[rank 0] a\n[rank 0] b\n[rank 0] b\n", "[rank 1] a\n[rank 1] cut off\n[rank 2] new\n", "end"]
    service = RestartingService([first, [PROXY], second], [RUNNING, ENDED])
    said: list[str] = []
    shown = "[rank 0] a\n[rank 1] a\n[rank 0] b\n[rank 0] b\n[rank 1] cut off\n[rank 2] new\nend"
    assert followed(service, said=said) == shown
    assert said == [f"{AWAY}; trying again", "the service answers again"]


def test_an_outage_is_counted_from_its_begin_and_is_over_with_the_first_line_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("service.cli.terminal.outage.time.monotonic", lambda: now[0])
    said: list[str] = []
    service = RestartingService([["a\n", AWAY], ["a\n", "b\n", AWAY], ["a\n", "b\n", "c\n"]], [RUNNING, ENDED])
    outage = Outage(said.append, 60)
    lines = followed_log(cast("Client", service), "t-1", None, None, None, outage)
    assert next(lines) == "a\n"
    for wanted in ("b\n", "c\n"):
        now[0] += 3600
        assert next(line for line in lines if line) == wanted
        assert said[-1] == "the service answers again"


def test_the_attempt_that_was_followed_is_followed_after_an_outage_in_which_it_was_lost() -> None:
    lost = {"status": "running", "attempts": [{"number": 1, "ended_at": "now"}, {"number": 2, "ended_at": None}]}
    service = RestartingService([["a\n", AWAY], ["a\n", "b\n"]], [QUEUED, lost, lost])
    assert followed(service) == "a\nb\n"
    assert service.asked == [(None, None), (None, 1)]


def test_a_tail_that_begins_within_a_line_goes_on_after_an_outage() -> None:
    service = RestartingService([["e long\nend\n", AWAY], ["some long\nend\n", "new\n"]], [RUNNING, ENDED])
    assert followed(service, tail=2) == "e long\nend\nnew\n"


def test_a_log_that_the_service_ends_as_it_stops_goes_on() -> None:
    service = RestartingService([["a\n"], ["a\n", "b\n"]], [RUNNING, RUNNING, ENDED])
    assert followed(service) == "a\nb\n"


def test_the_tail_of_a_log_goes_on_where_it_was_interrupted() -> None:
    lines = [f"[rank 0] {number % 7}\n" for number in range(BOOKMARK_LINES)]
    log: list[Part] = [*lines[:50], "[rank 0] unlike\n", *lines]
    service = RestartingService([[AWAY], [*log[40:60], AWAY], log], [RUNNING, ENDED])
    assert followed(service, tail=20) == "".join(map(str, log[40:]))
    assert service.asked == [(20, 1), (20, 1), (None, 1)]


def test_a_tail_whose_start_the_service_has_told_goes_on_behind_the_same_number_of_lines() -> None:
    """Each line of the tail is in the log before it, too."""
    service = RestartingService(
        [[AWAY], ["x\n", "y\n", AWAY], [AWAY], ["x\n", "y\n", "x\n"]], [RUNNING, ENDED], tail_start="1/0:4"
    )
    assert followed(service, tail=2) == "x\ny\nx\n"
    assert service.asked == [(2, 1), (2, 1), ("1/0:4", 1), ("1/0:4", 1)]


def test_the_first_attempt_of_a_queued_trial_is_followed() -> None:
    service = RestartingService([[], [], ["a\n"]], [QUEUED, QUEUED, RUNNING, ENDED])
    assert followed(service) == "a\n"
    assert service.asked == [(None, None), (None, None), (None, 1)]


@pytest.mark.parametrize(("error", "seconds"), [(DELETED, 60.0), (AWAY, 0.0)])
def test_a_trial_that_is_deleted_or_a_service_that_stays_away_ends_following(error: Exception, seconds: float) -> None:
    with pytest.raises(type(error)):
        followed(RestartingService([["a\n", error]], [RUNNING]), seconds=seconds)


@contextmanager
def silent_log(*logs: str) -> Iterator[tuple[str, list[Message]]]:
    """Yield the URL of a service that sends these logs of a running trial, in turn, and then nothing more.

    Also the headers of the calls for them.
    """
    asked: list[Message] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_log = "/logs" in self.path
            self.send_response(200)
            self.send_header("Content-Type", "text/plain" if is_log else "application/json")
            self.send_header("Paceline-Keep-Alive", "true")
            self.end_headers()
            if not is_log:
                self.wfile.write(json.dumps(TRIAL | RUNNING).encode())
                return
            asked.append(self.headers)
            self.wfile.write(logs[min(len(asked), len(logs)) - 1].encode())
            over.wait()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            over.set()
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_a_log_from_which_nothing_comes_any_more_is_followed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is gone, and nothing has ended it. The service has answered if the head of a log has come."""
    monkeypatch.setattr(client, "SILENCE_SECONDS", 2.0)
    said: list[str] = []
    logs = ["[rank 0] a\n\0", "", "[rank 0] a\n[rank 0] b\n\0"]
    with silent_log(*logs) as (address, asked), Client(address) as calls:
        log = followed_log(calls, "t-1", None, None, None, Outage(said.append))
        assert [next(line for line in log if line) for _ in range(2)] == ["[rank 0] a\n", "[rank 0] b\n"]
    assert asked[0]["Paceline-Keep-Alive"] == "true"
    assert asked[0]["Accept-Encoding"] == "identity", "a proxy that compresses holds back what has come"
    failed = f"a call to the service at {address} failed: timed out; trying again"
    assert said == [failed, "the service answers again"] * 2


class NotedTimeouts(httpx.SyncByteStream):
    """The body of an answer to this request, which notes how long its parts may take."""

    def __init__(self, request: httpx.Request, noted: list[float | None]) -> None:
        self._request = request
        self._noted = noted

    def __iter__(self) -> Iterator[bytes]:
        self._noted.append(self._request.extensions["timeout"]["read"])
        yield b"a\n\0"


@pytest.mark.parametrize(("headers", "seconds"), [({"Paceline-Keep-Alive": "true"}, 60), ({}, None)])
def test_silence_is_limited_only_if_the_service_breaks_it(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], seconds: float | None
) -> None:
    """An older service, or a proxy without the header, sends nothing while there is no output."""
    noted: list[float | None] = []

    def handle(_: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        noted.append(request.extensions["timeout"]["read"])
        given = headers | {"Content-Type": "text/plain"}
        return httpx.Response(200, headers=given, stream=NotedTimeouts(request, noted))

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    with Client("http://127.0.0.1:8000") as calls:
        assert list(calls.logs("t-1", None, None, follow=True)) == ["", "a\n"]
    assert noted == [None, seconds], "before the head of the answer, and after it"
