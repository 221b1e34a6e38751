"""`paceline logs`: of an earlier attempt, and followed."""

import re
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cli.client.answers import Unreachable
from service.cli.client.client import Client
from service.cli.terminal import followed_log
from service.cli.terminal.log_output import log_output
from tests.unit.cli.conftest import Run, external, finish_one

pytestmark = pytest.mark.slow


def test_a_log_is_followed_while_the_service_starts_again(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = external(run, project)
    asked = httpx.post(f"{url}/v1/experiments/{experiment['name']}/ask").json()

    def logs(*_: Any, **__: Any) -> Iterator[str]:
        yield "hello\n"
        if next(calls) == 0:
            raise Unreachable(url, httpx.ConnectError("connection refused"))
        yield "again\n"
        lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
        finish = f"{url}/v1/trials/{asked['trial']}/finish"
        httpx.post(finish, json={"outcome": "completed"}, headers=lease).raise_for_status()

    calls = count()
    monkeypatch.setattr(Client, "logs", logs)
    ended = run("logs", asked["trial"], "--follow")
    assert (ended.code, ended.out) == (0, "hello\nagain\n")
    assert "trying again\nthe service answers again\n" in ended.err


def test_the_followed_log_of_a_queued_trial_ends_with_its_first_attempt(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = external(run, project, failures={"max_retries": 1})
    path = f"{url}/v1/experiments/{experiment['name']}"
    trial = httpx.post(f"{path}/trials", json={"params": {"lr": 0.1}}).json()["id"]

    def attempt(*_: Any, **__: Any) -> Iterator[str]:
        yield "hello\n"
        finish_one(url, str(experiment["name"]), {"outcome": "failed"})
        httpx.post(f"{path}/ask").raise_for_status()

    monkeypatch.setattr(Client, "logs", attempt)
    ended = run("logs", trial, "--follow")  # while its second attempt runs
    assert (ended.code, ended.out, ended.err) == (0, "hello\n", "")


def test_the_log_of_an_earlier_attempt_is_shown(run: Run, project: Path, url: str) -> None:
    experiment = external(run, project, limits={"max_trials": 1}, failures={"max_retries": 1})
    for end in ("failed", "completed"):
        asked = httpx.post(f"{url}/v1/experiments/{experiment['name']}/ask").json()
        lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
        trial = f"{url}/v1/trials/{asked['trial']}"
        httpx.post(f"{trial}/logs", json={"rank": 0, "offset": 0, "text": f"{end}\n"}, headers=lease).raise_for_status()
        httpx.post(f"{trial}/finish", json={"outcome": end}, headers=lease).raise_for_status()
    assert run("logs", asked["trial"]).out == "[rank 0] completed\n"
    assert run("logs", asked["trial"], "--attempt", "1").out == "[rank 0] failed\n"


def test_a_rank_that_the_trial_does_not_have_is_an_error(run: Run, project: Path, url: str) -> None:
    trial = finish_one(url, str(external(run, project)["name"]), {"outcome": "completed"})
    assert run("logs", trial, "--rank", "0").code == 0
    ended = run("logs", trial, "--rank", "7")
    assert (ended.code, ended.err) == (2, "error: --rank: the trial has had 1 worker, whose ranks count from 0\n")


def test_a_log_has_its_colours_and_progress_bars_and_no_other_control_sequence(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = finish_one(url, str(external(run, project)["name"]), {"outcome": "completed"})
    chunks = ["10%\r\x1b[1;3", "1m100%\x1b[0m\x1b[2J\x1b[A\n", "\x1b]0;title\x07\x9b2J\u202e\t.\n", "\x1b["]
    monkeypatch.setattr(Client, "logs", lambda *_, **__: iter(chunks))
    shown = "10%\r\x1b[1;31m100%\x1b[0m\n" + "\\x1b]0;title\\x07\\x9b2J\\u202e\t.\n\\x1b["
    assert "".join(log_output(chunks)) == shown
    assert run("logs", trial).out == re.sub("\x1b.*?m", "", shown)  # a pipe gets no colours


def test_a_followed_tail_shows_each_line_once_although_the_connection_breaks(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of the tail are in the log before it, too."""
    monkeypatch.setattr(followed_log, "POLL_SECONDS", 0.0)
    asked = httpx.post(f"{url}/v1/experiments/{external(run, project)['name']}/ask").json()
    lease = {"Authorization": f"Bearer {asked['lease']['token']}"}
    trial = f"{url}/v1/trials/{asked['trial']}"

    def write(offset: int, text: str) -> None:
        chunk = {"rank": 0, "offset": offset, "text": text}
        httpx.post(f"{trial}/logs", json=chunk, headers=lease).raise_for_status()

    def breaking(*arguments: Any, **options: Any) -> Iterator[str]:
        yield from islice(logs(*arguments, **options), 2)  # the head, and the tail
        monkeypatch.setattr(Client, "logs", logs)
        write(16, "step\nend\n")
        httpx.post(f"{trial}/finish", json={"outcome": "completed"}, headers=lease).raise_for_status()
        raise Unreachable(url, httpx.ReadError("connection reset"))

    write(0, "step\nother\nstep\n")
    logs = Client.logs
    monkeypatch.setattr(Client, "logs", breaking)
    ended = run("logs", asked["trial"], "--follow", "--tail", "1")
    assert ended.out == "[rank 0] step\n" * 2 + "[rank 0] end\n"
