"""Calls of the command line that create something: repeated after a lost connection, without creating it twice."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from service.cli.client import client
from service.cli.client.answers import Refused, Unreachable
from service.stack.ports import free_port
from tests.unit.cli.canned_service import LOST, Answer, answer, answering, problem
from tests.unit.cli.conftest import Run, external
from tests.unit.cli.proxy import proxying, with_close

pytestmark = pytest.mark.slow

PARAMS = "{params: {lr: 0.1}}"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REPETITION_PAUSES_SECONDS", (0.0, 0.0))


@contextmanager
def losing_answers(url: str, count: int) -> Iterator[str]:
    """Yield the URL of a proxy: the service carries out every POST, and the first answers do not come back."""
    lost = 0

    def pass_on(near: socket.socket, far: socket.socket) -> None:
        nonlocal lost
        request = whole_request(near)
        far.sendall(with_close(request))
        answered = b"".join(iter(lambda: far.recv(65_536), b""))
        if request.startswith(b"POST") and lost < count:
            lost += 1
        else:
            near.sendall(answered)

    with proxying(url, pass_on) as address:
        yield address


def whole_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(65_536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while len(body) < int(length[1] if length else 0):
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def test_a_submission_whose_answer_is_lost_creates_one_experiment(run: Run, project: Path, url: str) -> None:
    with losing_answers(url, 2) as proxy:
        ended = run("submit", str(project / "experiment.yaml"), "--url", proxy)
    assert (ended.code, ended.err) == (0, "")
    assert " is running: up to 2 trials" in ended.out


def test_configurations_whose_answer_is_lost_are_enqueued_once(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project)["name"])
    with losing_answers(url, 1) as proxy:
        assert run("enqueue", name, PARAMS, "--url", proxy).code == 0
        assert run("enqueue", name, PARAMS, "--url", proxy).code == 0, "a second command adds a second one"
    assert len(httpx.get(f"{url}/v1/experiments/{name}/trials").json()["items"]) == 2


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (LOST, 3),
        (problem(502), 3),
        (problem(503), 3),
        (Answer(504, b"<html>"), 3),
        (problem(503, type="urn:paceline:error:too-much-work"), 1),
        (Answer(429, b"<html>"), 3),
        (problem(500), 3),
        (Answer(520), 3),
        (problem(408, type="urn:paceline:error:request-timeout"), 3),
        (problem(500, type="urn:paceline:error:internal-error"), 1),
        (Answer(404, b"<html>"), 1),
        (problem(409), 1),
        (answer({}), 1),
    ],
)
def test_what_may_be_over_soon_is_repeated_with_the_same_key(run: Run, given: Answer, count: int) -> None:
    with answering(given) as (address, requests):
        assert run("enqueue", "mine", PARAMS, "--url", address).code in {1, 2}
        first, second = len(requests), run("enqueue", "mine", PARAMS, "--url", address)
    assert (first, len(requests)) == (count, 2 * count), second.err
    keys = [request.headers["Idempotency-Key"] for request in requests]
    assert len(set(keys[:count])) == len(set(keys[count:])) == 1
    assert keys[0] != keys[-1]


OPEN = "hint: the service may have carried out the call: see `paceline show mine` before you repeat it\n"


@pytest.mark.parametrize(
    ("given", "is_open"),
    [
        ([LOST], True),
        ([LOST, problem(503)], True),
        ([LOST, problem(500)], True),
        ([problem(503), Answer(504, b"<html>")], True),
        ([LOST, problem(409, type="urn:paceline:error:wrong-state")], False),
        ([LOST, Answer(429, b"<html>")], True),
        ([LOST, problem(401, type="urn:paceline:error:unauthorized")], True),
        ([Answer(201, b'{"id"')], True),
        ([problem(503)], False),
        ([problem(500)], True),
        ([Answer(520, b"<html>")], True),
        ([Answer(408, b"<html>")], True),
        ([Answer(404, b"<html>")], False),
        ([Answer(429, b"<html>")], False),
        ([problem(500, type="urn:paceline:error:internal-error")], False),
        ([problem(408, type="urn:paceline:error:request-timeout")], False),
    ],
)
def test_an_error_says_whether_the_call_may_have_been_carried_out(
    run: Run, given: list[Answer], *, is_open: bool
) -> None:
    with answering(*given) as (address, _):
        ended = run("enqueue", "mine", PARAMS, "--url", address)
    assert ended.err.endswith(OPEN) == is_open
    assert ("hint" in ended.err) == is_open


def test_a_submission_that_is_left_open_names_the_list(run: Run, project: Path) -> None:
    with answering(LOST) as (address, _):
        ended = run("submit", str(project / "experiment.yaml"), "--url", address)
    assert "hint: the service may have carried out the call: see `paceline ls` before you repeat it" in ended.err
    assert ended.code == 1


def test_a_service_that_is_not_there_has_carried_out_nothing(run: Run) -> None:
    ended = run("enqueue", "mine", PARAMS, "--url", f"http://127.0.0.1:{free_port()}")
    assert (ended.code, "hint" in ended.err) == (1, False)


def test_a_call_that_creates_nothing_is_not_repeated(run: Run) -> None:
    with answering(LOST) as (address, requests):
        for command in (["retry", "t-000000000000"], ["pause", "mine"], ["show", "mine"]):
            assert run(*command, "--url", address).code == 1
    assert len(requests) == 3
    assert [request.headers["Idempotency-Key"] for request in requests] == [None] * 3


@pytest.mark.parametrize(
    ("command", "look"),
    [
        (["stop", "mine"], "show mine"),
        (["stop", "t-000000000000"], "show t-000000000000"),
        (["pause", "mine"], "show mine"),
        (["retry", "t-000000000000"], "show t-000000000000"),
        (["checkpoints", "t-000000000000", "--pin", "1"], "checkpoints t-000000000000"),
    ],
)
@pytest.mark.parametrize("given", [LOST, Answer(502, b"<html>"), Answer(200, b"<html>")])
def test_a_change_whose_answer_is_lost_may_have_been_made(
    run: Run, command: list[str], look: str, given: Answer
) -> None:
    with answering(given) as (address, _):
        ended = run(*command, "--url", address)
    hint = f"hint: the service may have carried out the call: see `paceline {look}` before you repeat it\n"
    assert ended.err.endswith(hint)
    assert ended.code in {1, 2}


@pytest.mark.parametrize("given", [LOST, Answer(502, b"<html>"), Answer(200, b"<html>")])
def test_a_deletion_whose_answer_is_lost_may_have_been_made(given: Answer) -> None:
    with (
        answering(given) as (address, _),
        client.Client(address) as calls,
        pytest.raises((Refused, Unreachable)) as raised,
    ):
        calls.delete("mine", keep_checkpoints=False)
    error: Any = raised.value
    assert error.hints == ["the service may have carried out the call: see `paceline ls` before you repeat it"]


def test_an_interrupt_ends_the_repetition(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "time", SimpleNamespace(sleep=interrupted))
    with answering(LOST) as (address, requests):
        ended = run("enqueue", "mine", PARAMS, "--url", address)
    assert (ended.code, len(requests)) == (130, 1)
