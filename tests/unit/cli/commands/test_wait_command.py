"""`paceline wait`: a script waits for the end of an experiment, and the exit code says how it ended."""

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from service.cli.terminal import end_wait, outage
from tests.unit.cli.canned_service import LOST, Answer, answer, answering, problem
from tests.unit.cli.conftest import Run, external, finish_one, submitted

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _polls_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_wait, "POLL_SECONDS", 0.0)


def test_a_completed_experiment_has_the_exit_code_0(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, limits={"max_trials": 1})["name"])
    finish_one(url, name, {"outcome": "completed"})
    ended = run("wait", name)
    why = "the only trial has ended (limits.max_trials is 1)"
    assert (ended.code, ended.out, ended.err) == (0, f"{name} completed (max_trials): {why}\n", "")


def test_a_failed_experiment_has_the_exit_code_3_and_its_reason_is_shown(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, failures={"max_failed_trials": 0})["name"])
    finish_one(url, name, {"outcome": "failed", "error": {"kind": "user_error", "message": "ValueError: no"}})
    ended = run("wait", name)
    assert ended.code == 3
    assert ended.out.startswith(f"{name} failed (too_many_failures): ")
    assert "ValueError: no" in ended.out


def test_a_stopped_experiment_has_the_exit_code_4(run: Run, project: Path) -> None:
    name = str(submitted(run, project)["name"])
    run("stop", name)
    ended = run("wait", name, "--json")
    assert ended.code == 4
    assert json.loads(ended.out)["status"] == "stopped"


@pytest.mark.parametrize("away", [LOST, problem(503), Answer(502, b"<html>"), answer({"id": "x"})])
def test_it_waits_while_trials_run_and_while_the_service_is_away(
    run: Run, project: Path, url: str, away: Answer
) -> None:
    name = submitted(run, project)["name"]
    path = f"{url}/v1/experiments/{name}"
    running, paused = answer(httpx.get(path).json()), answer(httpx.post(f"{path}/pause").json())
    stopped = answer(httpx.post(f"{path}/stop").json())
    with answering(running, running, away, away, paused, stopped) as (address, requests):
        ended = run("wait", str(name), "--url", address)
    assert (ended.code, ended.out) == (4, f"{name} stopped (user): a user stopped it\n")
    assert ended.err.count("trying again\nthe service answers again\n") == 1
    assert len(requests) == 6


def test_a_service_that_stays_away_ends_the_waiting(
    run: Run, project: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "time", SimpleNamespace(monotonic=count(step=outage.OUTAGE_SECONDS).__next__))
    running = answer(httpx.get(f"{url}/v1/experiments/{submitted(run, project)['name']}").json())
    with answering(running, LOST) as (address, _):
        ended = run("wait", "mine", "--url", address)
    assert (ended.code, ended.out) == (1, "")
    assert f"a call to the service at {address} failed" in ended.err


def test_an_experiment_that_is_unknown_or_deleted_meanwhile_has_the_exit_code_2(
    run: Run, project: Path, url: str
) -> None:
    assert run("wait", "no-such").code == 2
    running = answer(httpx.get(f"{url}/v1/experiments/{submitted(run, project)['name']}").json())
    gone = problem(404, type="urn:paceline:error:not-found", detail="there is no experiment mine")
    with answering(running, gone) as (address, _):
        ended = run("wait", "mine", "--url", address)
    assert (ended.code, ended.err) == (2, "error: there is no experiment mine\n")
