"""What another program answers in the service's place, as a proxy does, counts as no answer. Needs no Ray."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.trainer.conftest import set_constant
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from tests.trainer.service_listener import listener, nothing
from trainer import wire
from trainer.client import http
from trainer.client.errors import CallRefused, ForeignAnswer, ServiceUnreachable
from trainer.client.filter_detector import FilterDetector
from trainer.client.finish import post_finish
from trainer.client.http import ServiceClient, download_package, post_with_optional
from trainer.client.listener import ReportAnswered
from trainer.client.log_outbox import LogOutbox
from trainer.client.outbox import Outbox, ReportOutbox, SavedCheckpoint
from trainer.slot.attempt.failure_classification import to_json, undelivered
from trainer.worker.failures import LOST, USER_ERROR, Failure

Canned = tuple[int, bytes, dict[str, str]]

PAGE = b"<html><title>Sign in</title></html>"
FOREIGN: dict[str, Canned] = {
    "an empty answer": (200, b"", {}),
    "an object": (200, b'{"status": "ok"}', {}),
    "a list": (200, b"[]", {}),
    "a page": (200, PAGE, {}),
    "another answer of the service": (200, b'{"items": [], "next_cursor": null}', {}),
    "an incomplete next trial": (200, b'{"status": "completed", "next": {"trial": "t-1"}}', {}),
    "500": (500, PAGE, {}),
    "500 as JSON": (500, b"{}", {}),
    "520": (520, b"", {}),
    "521": (521, PAGE, {}),
    "501": (501, b"oops", {}),
    "401": (401, b'{"type": "https://proxy.example/blocked", "title": "blocked"}', {}),
    "403": (403, b'{"type": "about:blank"}', {}),
    "404": (404, b'{"detail": "Not Found"}', {}),
    "405": (405, PAGE, {}),
    "409": (409, b'{"type": "lease-lost"}', {}),
    "413": (413, PAGE, {}),
    "301": (301, b"", {"Location": "https://elsewhere.example/"}),
}
EMPTY: Canned = (204, b"", {})

foreign = pytest.mark.parametrize("given", FOREIGN.values(), ids=FOREIGN)
foreign_or_empty = pytest.mark.parametrize("given", [*FOREIGN.values(), EMPTY], ids=[*FOREIGN, "204"])


class Proxy:
    """Answers the first calls with what is `canned`, and those with what is `filtered` with a page.

    It passes the others on to the service, and refuses those of more than `max_bytes`.
    """

    def __init__(self, service: FakeService) -> None:
        self.canned: list[Canned] = []
        self.calls: list[str] = []
        self.filtered: bytes | None = None
        self.max_bytes = 10_000_000
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._pass_on()

            def do_POST(self) -> None:
                self._pass_on()

            def _pass_on(self) -> None:
                proxy.calls.append(f"{self.command} {self.path}")
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                is_filtered = proxy.filtered is not None and proxy.filtered in body
                is_too_large = len(body) > proxy.max_bytes
                canned = proxy.canned or [FOREIGN["a page"]] * is_filtered or [FOREIGN["413"]] * is_too_large
                status, content, headers = canned.pop(0) if canned else self._service(body)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def _service(self, body: bytes) -> Canned:
                headers = {name: self.headers[name] for name in ("Authorization",) if name in self.headers}
                answer = httpx.request(self.command, service.url + self.path, content=body, headers=headers)
                named = answer.headers.get("Content-Disposition")
                return answer.status_code, answer.content, {"Content-Disposition": named} if named else {}

            def log_message(self, *_args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeService]:
    with FakeService(str(tmp_path)).serving() as service:
        yield service


@pytest.fixture
def proxy(service: FakeService) -> Iterator[Proxy]:
    proxy = Proxy(service)
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.01,))
    thread.start()
    yield proxy
    proxy.server.shutdown()
    proxy.server.server_close()
    thread.join()


@pytest.fixture
def trial(service: FakeService) -> str:
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    service.assign(trial)
    return trial


def client(proxy: Proxy, trial: str) -> ServiceClient:
    return ServiceClient(proxy.url, f"lease-{trial}")


def deliver(outbox: Outbox) -> None:
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    outbox.close()
    outbox.join()


@foreign_or_empty
def test_a_report_is_sent_again_until_the_service_itself_answers(
    service: FakeService, proxy: Proxy, trial: str, given: Canned
) -> None:
    answers: list[ReportAnswered] = []
    lost: list[Exception] = []
    heard = listener(on_report_answered=answers.append, on_report_lost=lost.append)
    outbox = ReportOutbox(client(proxy, trial), trial, heard)
    proxy.canned = [given]
    outbox.put(0, {"loss": 1}, SavedCheckpoint("/saved"))
    deliver(outbox)
    assert [report.sequence for report in service.reports[trial]] == [0]
    assert ([(one.checkpoint, one.counts) for one in answers], lost) == ([("/saved", True)], [])
    assert len(proxy.calls) == 2


@foreign
def test_output_is_sent_again_until_the_service_itself_answers(
    service: FakeService, proxy: Proxy, trial: str, given: Canned
) -> None:
    outbox = LogOutbox(client(proxy, trial), trial, nothing)
    proxy.canned = [given]
    outbox.put(0, 0, "a line\n")
    deliver(outbox)
    assert service.log(trial) == "a line\n"


def test_output_that_a_filter_answers_itself_keeps_neither_other_output_nor_the_end(
    service: FakeService, proxy: Proxy, trial: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_constant(monkeypatch, LogOutbox._filter_detector, "FILTERED_SECONDS", 0.0)
    outbox = LogOutbox(client(proxy, trial), trial, nothing)
    proxy.filtered = b"/etc/passwd"
    outbox.put(0, 0, "/etc/passwd\n")
    outbox.put(1, 0, "a line\n")
    deliver(outbox)
    assert service.log(trial) == "[missing up to 12]"
    assert service.log(trial, 1) == "a line\n"
    assert "12 bytes of the log of rank 0 are left out" in caplog.text


def test_output_is_whole_where_the_service_comes_back_while_it_is_tried_without_text(
    service: FakeService, proxy: Proxy, trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, LogOutbox._filter_detector, "FILTERED_SECONDS", 0.0)
    outbox = LogOutbox(client(proxy, trial), trial, nothing)
    proxy.canned = [FOREIGN["a page"]]  # and then the service answers the call without text
    outbox.put(0, 0, "a line\n")
    deliver(outbox)
    assert service.log(trial) == "a line\n"


@foreign_or_empty
def test_an_end_is_sent_again_until_the_service_itself_answers(
    service: FakeService, proxy: Proxy, trial: str, given: Canned
) -> None:
    proxy.canned = [given]
    answer = post_finish(client(proxy, trial), trial, {"outcome": "completed"}, threading.Event())
    assert answer == {"status": "completed", "next": None}
    assert trial in service.finishes


def test_an_end_whose_error_a_filter_answers_itself_comes_without_its_text(
    service: FakeService, proxy: Proxy, trial: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_constant(monkeypatch, post_finish, "FILTERED_SECONDS", 0.0)
    proxy.filtered = b"/etc/passwd"
    failure = Failure(USER_ERROR, "KeyError: 1", "open('/etc/passwd')", {0: "open('/etc/passwd')"})
    body = {"outcome": "failed", "error": to_json(failure, began=True)}
    post_finish(client(proxy, trial), trial, body, threading.Event())
    error = service.finishes[trial].error
    assert error is not None
    assert (error.kind, error.traceback, error.ranks) == (USER_ERROR, None, [])
    assert "a proxy answers calls that contain this text" in error.message
    assert "open('/etc/passwd')" in caplog.text


def test_an_end_keeps_its_text_where_the_service_is_away_and_comes_back(
    service: FakeService, proxy: Proxy, trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, post_finish, "FILTERED_SECONDS", 0.0)
    proxy.canned = [FOREIGN["a page"]]  # and then the heartbeat and the end are answered
    body = {"outcome": "failed", "error": to_json(Failure(USER_ERROR, "KeyError: 1"), began=True)}
    post_finish(client(proxy, trial), trial, body, threading.Event())
    error = service.finishes[trial].error
    assert error is not None
    assert error.message == "KeyError: 1"


SAMPLES = [
    {"sequence": number, "age_seconds": 0.5, "node": 1, "metrics": {"cpu_utilization_percentage": 50.0}}
    for number in range(1_000)
]


@pytest.mark.parametrize("samples", [[], SAMPLES], ids=["without samples", "with samples"])
def test_an_end_that_is_too_large_for_a_proxy_comes_without_tracebacks(
    service: FakeService, proxy: Proxy, trial: str, samples: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    proxy.max_bytes = 100_000
    error = to_json(Failure(USER_ERROR, "KeyError: 1", 150_000 * "x", {0: 150_000 * "x"}), began=True)
    finish = partial(post_finish, client(proxy, trial), trial, cancelled=threading.Event())
    post_with_optional(finish, {"outcome": "failed", "error": error} | ({"system_metrics": samples} if samples else {}))
    found = service.finishes[trial].error
    assert found is not None
    assert (found.kind, found.message, found.ranks) == (USER_ERROR, "KeyError: 1", [])
    why = "left out, because a proxy refuses calls of this size"
    assert found.traceback == f"{why}; the log of the slot has the traceback"
    has_log_the_traceback = 40_000 * "x" in caplog.text
    assert has_log_the_traceback


def test_an_end_that_is_too_large_for_a_proxy_because_of_samples_keeps_its_tracebacks(
    service: FakeService, proxy: Proxy, trial: str
) -> None:
    proxy.max_bytes = 100_000
    error = to_json(Failure(USER_ERROR, "KeyError: 1", 50_000 * "x"), began=True)
    finish = partial(post_finish, client(proxy, trial), trial, cancelled=threading.Event())
    post_with_optional(finish, {"outcome": "failed", "error": error, "system_metrics": SAMPLES})
    found = service.finishes[trial].error
    assert found is not None
    assert found.traceback == 50_000 * "x"


def test_an_end_that_is_too_large_without_any_text_is_refused(proxy: Proxy, trial: str) -> None:
    proxy.max_bytes = 100_000
    with pytest.raises(CallRefused, match="413"):
        post_finish(client(proxy, trial), trial, {"outcome": "x" * 200_000}, threading.Event())


def test_a_report_that_a_filter_answers_itself_ends_the_attempt(
    service: FakeService, proxy: Proxy, trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, ReportOutbox._filter_detector, "FILTERED_SECONDS", 0.0)
    lost: list[Exception] = []
    outbox = ReportOutbox(client(proxy, trial), trial, listener(on_report_lost=lost.append))
    proxy.filtered = b"select * from"
    outbox.put(0, {"loss": 1}, None)
    outbox.put(1, {"select * from": 1}, None)
    outbox.put(2, {"loss": 1}, SavedCheckpoint("/saved"))
    deliver(outbox)
    assert [undelivered(error).kind for error in lost] == [LOST]
    assert "reports answered 200 without a body of Paceline's" in undelivered(lost[0]).message


def test_foreign_answers_before_and_after_an_outage_are_those_of_no_filter() -> None:
    search = FilterDetector(0.0, lambda: True)
    page, away = ForeignAnswer("a page"), ServiceUnreachable("503")
    assert [search.is_filtered(one) for one in (page, away, page, page)] == [False, False, False, True]


def test_a_report_waits_where_heartbeats_get_foreign_answers_too(
    service: FakeService, proxy: Proxy, trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, ReportOutbox._filter_detector, "FILTERED_SECONDS", 0.0)
    lost: list[Exception] = []
    outbox = ReportOutbox(client(proxy, trial), trial, listener(on_report_lost=lost.append))
    proxy.canned = [FOREIGN["a page"]] * 8
    outbox.put(0, {"loss": 1}, None)
    deliver(outbox)
    assert [report.sequence for report in service.reports[trial]] == [0]
    assert lost == []


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.post("/v1/agents/one/claim", {}),
        lambda client: client.get("/v1/agents/one/attempts"),
        lambda client: client.post("/v1/agents/one/deletions", {}),
        lambda client: client.post("/v1/agents/one/leave", {}),
        lambda client: client.post("/v1/trials/t-1/heartbeat", {}),
        lambda client: client.package("sha256:00"),
    ],
    ids=["claim", "attempts", "deletions", "leave", "heartbeat", "package"],
)
@foreign
def test_no_call_takes_an_answer_of_another_program(
    proxy: Proxy, given: Canned, call: Callable[[ServiceClient], object]
) -> None:
    proxy.canned = [given]
    with pytest.raises(ForeignAnswer, match=f"{proxy.url}/v1/.* answered {given[0]}"):
        call(ServiceClient(proxy.url, "token"))
    assert len(proxy.calls) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504, 507])
def test_a_proxy_before_a_service_that_is_away_is_no_other_program(proxy: Proxy, status: int) -> None:
    proxy.canned = [(status, PAGE, {})]
    with pytest.raises(ServiceUnreachable, match=str(status)) as raised:
        ServiceClient(proxy.url, "token").post("/v1/agents/one/claim", {})
    assert type(raised.value) is ServiceUnreachable


def test_a_call_that_a_proxy_finds_too_large_is_not_repeated(proxy: Proxy) -> None:
    proxy.canned = [(413, PAGE, {})]
    with pytest.raises(CallRefused, match=r"answered 413 without a body of Paceline's.*Sign in"):
        ServiceClient(proxy.url, "token").post("/v1/trials/t-1/reports", {"text": "x" * 100_000})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_named_and_not_followed(proxy: Proxy, status: int) -> None:
    to = f"{proxy.url}/v1/agents/one/claim"
    proxy.canned = [(status, b"", {"Location": to})]
    with pytest.raises(ForeignAnswer, match=f"answered {status}, a redirection to {to}, .*set PACELINE_URL"):
        ServiceClient(proxy.url, "token").post("/v1/agents/one/claim", {})
    assert proxy.calls == ["POST /v1/agents/one/claim"]


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirection_to_another_address_of_the_service_says_what_to_set(proxy: Proxy, status: int) -> None:
    proxy.canned = [(status, b"", {"Location": "https://user:secret@paceline.example/v1/agents/one/claim"})]
    with pytest.raises(ForeignAnswer, match=r"set PACELINE_URL to https://\S*@paceline.example$") as raised:
        ServiceClient(proxy.url, "token").post("/v1/agents/one/claim", {})
    assert "secret" not in str(raised.value)


def test_the_next_address_is_called_where_another_program_answers(
    service: FakeService, proxy: Proxy, trial: str
) -> None:
    proxy.canned = 5 * [FOREIGN["an object"]]
    both = ServiceClient(f"{proxy.url},{service.url}", f"lease-{trial}")
    body = {"reports": [{"sequence": 0, "metrics": {}}]}
    assert both.post(f"/v1/trials/{trial}/reports", body) == json.loads(wire.Answer().model_dump_json())


def test_people_see_that_another_program_answers(proxy: Proxy, trial: str, caplog: pytest.LogCaptureFixture) -> None:
    proxy.canned = [(404, PAGE, {})]
    with caplog.at_level(logging.WARNING, "paceline"):
        post_finish(client(proxy, trial), trial, {"outcome": "completed"}, threading.Event())
    [line] = caplog.messages
    assert f"{proxy.url}/v1/trials/{trial}/finish answered 404 without a body of Paceline's" in line
    assert "<title>Sign in</title>" in line


def test_a_package_with_other_bytes_is_asked_for_again(service: FakeService, proxy: Proxy) -> None:
    package = service.add_package("x = 1")
    proxy.canned = [(200, b"x = 2", {"Content-Disposition": 'attachment; filename="train.py"'})]
    found = download_package(ServiceClient(proxy.url, "token"), package, lambda: False)
    assert (found.content, found.filename) == (b"x = 1", "train.py")
    assert len(proxy.calls) == 2


def test_a_package_that_is_damaged_at_each_download_is_refused(
    service: FakeService, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "PACKAGE_DOWNLOADS", 2)
    package = service.add_package("x = 1")
    damaged: Canned = (200, b"x = 2", {"Content-Disposition": 'attachment; filename="train.py"'})
    proxy.canned = 2 * [damaged]
    with pytest.raises(CallRefused, match=r"are not the package's: the service's file is damaged, or a proxy"):
        download_package(ServiceClient(proxy.url, "token"), package, lambda: False)
    proxy.canned = 3 * [FOREIGN["a page"]]
    assert download_package(ServiceClient(proxy.url, "token"), package, lambda: False).content == b"x = 1"


def test_a_foreign_answer_is_no_warning_for_each_try(
    proxy: Proxy, trial: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.canned = 3 * [FOREIGN["a page"]]
    post_finish(client(proxy, trial), trial, {"outcome": "completed"}, threading.Event())
    assert len(proxy.calls) == 4
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
