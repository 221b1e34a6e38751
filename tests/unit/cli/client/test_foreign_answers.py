"""Answers that are none of Paceline's, as of a proxy: a sentence instead of a traceback."""

import json
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from service.cli.client.answers import Refused
from service.cli.client.client import Client
from service.cli.terminal import console, watch
from tests.unit.cli.canned_service import Answer, answer, answering, problem
from tests.unit.cli.conftest import Run, submitted

LOGIN = "https://login.example/"


class Proxy(BaseHTTPRequestHandler):
    """Redirects trials, and answers everything else with a page."""

    def do_GET(self) -> None:
        is_moved = "trials" in self.path
        self.send_response(302 if is_moved else 200)
        if is_moved:
            self.send_header("Location", LOGIN)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def client() -> Iterator[Client]:
    with serving_at(HTTPServer(("127.0.0.1", 0), Proxy)) as address, Client(address) as client:
        yield client


@contextmanager
def redirecting(moved: str, status: int) -> Iterator[str]:
    """Yield the URL of a proxy that redirects each call to the same path below another address."""

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", moved + self.path)
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with serving_at(HTTPServer(("127.0.0.1", 0), Redirecting)) as address:
        yield address


@contextmanager
def serving_at(server: HTTPServer) -> Iterator[str]:
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_redirection_is_named(client: Client) -> None:
    with pytest.raises(Refused, match=f"answered 302, a redirection to {LOGIN}, without a body of Paceline's"):
        client.trial("t-1")


def test_a_page_is_no_answer(client: Client) -> None:
    for call in (client.readiness, lambda: client.experiment("x"), lambda: list(client.agents())):
        with pytest.raises(Refused, match="answered 200 without a body of Paceline's"):
            call()


@pytest.mark.parametrize("command", [["fetch", "mine", "--tensorboard"], ["logs", "t-000000000000"]])
def test_a_redirection_of_a_stream_is_named(run: Run, command: list[str]) -> None:
    with answering(Answer(302, b"<html>", {"Location": LOGIN})) as (address, _):
        ended = run(*command, "--url", address)
    assert f"answered 302, a redirection to {LOGIN}, without a body of Paceline's" in ended.err
    assert ended.code == 2


@pytest.mark.parametrize("status", [301, 307, 308])
@pytest.mark.parametrize("moved", ["https://paceline.example", "https://example/paceline"])
@pytest.mark.parametrize("command", [["show", "mine"], ["ls"], ["pause", "mine"], ["logs", "t-000000000000"]])
def test_a_redirection_to_another_address_of_the_service_says_what_to_set(
    run: Run, command: list[str], moved: str, status: int
) -> None:
    with redirecting(moved, status) as address:
        ended = run(*command, "--url", address)
    assert f"answered {status}, a redirection to {moved}/v1/" in ended.err
    assert f"the redirection is not followed: set PACELINE_URL to {moved}\n" in ended.err


def test_a_redirection_within_the_same_address_does_not_say_to_set_it(run: Run) -> None:
    with answering(Answer(308, b"", {"Location": "/v1/experiments/mine/"})) as (address, _):
        ended = run("show", "mine", "--url", address)
    assert "set PACELINE_URL to the address at which the service itself answers\n" in ended.err


def undecodable(status: int) -> Answer:
    return Answer(status, b"no gzip", {"Content-Encoding": "gzip"})


FOREIGN = "without a body of Paceline's; is PACELINE_URL right, or is a proxy in between?"


@pytest.mark.parametrize(
    "given",
    [problem(500, body=b'{"status": 5'), problem(500, body=b"[1]"), problem(500, body=b"{}"), Answer(500, b"{}")],
)
def test_a_damaged_error_is_shown(run: Run, given: Answer) -> None:
    with answering(given) as (address, _):
        ended = run("show", "mine", "--url", address)
    assert f"/v1/experiments/mine answered 500 {FOREIGN} {given.body.decode()}\n" in ended.err
    assert ended.code == 2


@pytest.mark.parametrize("errors", [["x"], "x", None, [{"path": "space"}]])
def test_an_error_with_other_members_is_shown_by_its_detail(run: Run, errors: object) -> None:
    with answering(problem(422, detail="the space is empty", errors=errors)) as (address, _):
        assert run("show", "mine", "--url", address).err == "error: the space is empty\n"


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("command", [["show", "mine"], ["logs", "t-000000000000"]])
def test_a_body_that_cannot_be_decompressed_is_no_answer(run: Run, command: list[str], status: int) -> None:
    with answering(undecodable(status)) as (address, _):
        ended = run(*command, "--url", address)
    assert ended.err.startswith(f"error: {address}/v1/")
    assert f" answered {status} with a body that is damaged (" in ended.err
    assert ended.code == 2


COMMANDS = [
    ["show", "mine"],
    ["show", "t-000000000000"],
    ["ls"],
    ["watch", "mine"],
    ["best", "mine"],
    ["fetch", "mine"],
    ["fetch", "t-000000000000"],
    ["pause", "mine"],
    ["stop", "mine"],
    ["change", "mine", "--set", "priority=1"],
    ["delete", "mine", "--yes"],
    ["importance", "mine"],
    ["replay", "mine", "--rule", "asha"],
    ["enqueue", "mine", "{params: {}}"],
    ["retry", "t-000000000000"],
    ["retry", "mine", "--failed"],
    ["stop", "t-000000000000"],
    ["logs", "t-000000000000", "--follow"],
    ["reports", "t-000000000000"],
    ["decisions", "t-000000000000"],
    ["checkpoints", "t-000000000000"],
    ["checkpoints", "t-000000000000", "--pin", "1"],
    ["retention", "mine"],
]
OBJECTS = [
    {"message": "hello"},
    {"id": "x", "items": []},
    {"id": 1, "name": "x", "status": "up", "number": 1, "step": 1, "metric": "x", "items": [1], "next_cursor": None},
    {"items": [{"id": "x", "name": "x"}], "next_cursor": None, "remove": 1, "keep": 1},
]


@pytest.mark.parametrize("body", OBJECTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_object_of_others_is_no_answer(run: Run, command: list[str], body: object) -> None:
    with answering(answer(body)) as (address, _):
        ended = run(*command, "--url", address)
    assert f"answered 200 {FOREIGN}" in ended.err
    assert ended.code == 2


@pytest.mark.parametrize("body", OBJECTS)
@pytest.mark.parametrize("command", ["submit", "preview"])
def test_an_object_of_others_answers_no_spec(run: Run, project: Path, command: str, body: object) -> None:
    with answering(answer(body)) as (address, _):
        ended = run(command, str(project / "experiment.yaml"), "--url", address)
    assert f"answered 200 {FOREIGN}" in ended.err
    assert ended.code == 2


@pytest.mark.parametrize(
    "given",
    [
        Answer(200, b"<html>", {"Content-Type": "text/html"}),
        Answer(204, b"", {}),
        Answer(204, b"", {"Content-Type": "text/plain"}),
        Answer(202, b"queued", {"Content-Type": "text/plain"}),
    ],
)
def test_an_answer_of_others_is_no_log(run: Run, given: Answer) -> None:
    with answering(given) as (address, _):
        ended = run("logs", "t-000000000000", "--url", address)
    assert (ended.out, ended.code) == ("", 2)
    assert f"answered {given.status} {FOREIGN} {given.body.decode()}".rstrip() in ended.err


EXPERIMENT = {"id": "x-1", "name": "mine", "status": "up", "spec": {}, "counts": {"up": "x"}, "created_at": "y"}
TRIAL = {"id": "t-1", "number": 0, "status": "running", "params": {}, "values": {"loss": []}, "checkpoint": 1}
PLANNED = {"trial_number": 0, "step": 1, "bytes": 0, "action": "keep", "why": "x"}
WITH_ATTEMPTS = TRIAL | {"attempts": [{}]}


def a_page(*items: object) -> dict[str, object]:
    return {"items": items, "next_cursor": None}


@pytest.mark.parametrize(
    ("command", "bodies"),
    [
        (["ls"], [a_page(EXPERIMENT)]),
        (["show", "mine"], [EXPERIMENT, a_page(TRIAL)]),
        (["show", "t-000000000000"], [WITH_ATTEMPTS]),
        (["watch", "mine"], [EXPERIMENT]),
        (["best", "mine"], [WITH_ATTEMPTS, EXPERIMENT]),
        (["fetch", "mine"], [WITH_ATTEMPTS]),
        (["retention", "mine"], [a_page(PLANNED) | {"remove": 1, "keep": 1}]),
        (["preview", "SPEC"], [{"size": None, "dead": [1], "sampler": {}, "samples": [1]}]),
        (["submit", "SPEC"], [EXPERIMENT]),
    ],
    ids=lambda one: one[0] if isinstance(one[0], str) else "",
)
def test_an_answer_whose_inner_parts_have_another_shape_is_one_error(
    run: Run, project: Path, command: list[str], bodies: list[object]
) -> None:
    arguments = [str(project / "experiment.yaml") if one == "SPEC" else one for one in command]
    with answering(*map(answer, bodies)) as (address, _):
        ended = run(*arguments, "--url", address)
    assert ended.err.startswith(f"error: the command failed after an answer of {address} (")
    assert "the service of another version" in ended.err
    assert ended.err.count("\n") == 1
    assert ended.code == 1


def test_a_fault_of_the_command_after_an_answer_is_named_with_its_place_and_has_a_traceback_if_wanted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "print", lambda *_, **__: statistics.mean([]))
    with answering(*[answer(a_page())] * 3) as (address, _):
        monkeypatch.setenv("PACELINE_TRACEBACK", "0")
        assert run("ls", "--url", address).code == 1
        monkeypatch.delenv("PACELINE_TRACEBACK")
        ended = run("ls", "--url", address)
        assert "(StatisticsError: mean requires at least one data point; service/cli/terminal/console.py" in ended.err
        assert "PACELINE_TRACEBACK=1 shows" in ended.err
        assert ended.code == 1
        monkeypatch.setenv("PACELINE_TRACEBACK", "1")
        with pytest.raises(statistics.StatisticsError):
            run("ls", "--url", address)


def test_a_page_that_comes_again_ends_the_list(run: Run) -> None:
    """As from a cache that ignores the query."""
    with answering(answer({"items": [], "next_cursor": "more"})) as (address, requests):
        ended = run("ls", "--url", address)
    assert f"{address}/v1/experiments?cursor=more answered 200 {FOREIGN}" in ended.err
    assert (ended.code, len(requests)) == (2, 2)


@pytest.mark.parametrize("body", [{}, {"database": "ok"}])
def test_doctor_takes_an_object_of_others_for_no_service(run: Run, body: object) -> None:
    with answering(answer(body)) as (address, _):
        found = json.loads(run("doctor", "--json", "--url", address).out)
    [failed] = [one for one in found if one["state"] == "failed"]
    assert f"/readyz answered 200 {FOREIGN}" in failed["found"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "away",
    [
        problem(503, body=b'{"status": 50'),
        undecodable(503),
        Answer(200, b"<html>"),
        Answer(404, b"<html>"),
        Answer(429, b"<html>"),
        Answer(500, b"<html>"),
        problem(521),
        answer({"id": "x", "items": []}),
    ],
)
def test_an_answer_of_another_program_does_not_end_following(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch, away: Answer
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(watch, "MLFLOW_SECONDS", 0.0)
    name = submitted(run, project)["name"]
    running = answer(httpx.get(f"{url}/v1/experiments/{name}").json())
    stopped = answer(httpx.post(f"{url}/v1/experiments/{name}/stop").json())
    events = answer({"items": [], "next_cursor": None})
    with answering(running, away, stopped, events, answer({})) as (address, _):
        ended = run("watch", str(name), "--url", address)
    assert "the service answers again" in ended.out
    assert f"{name} stopped (user)" in ended.out
    assert ended.code == 0
