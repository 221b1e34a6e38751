"""`paceline retry`: of one trial, and of all that have failed."""

import json
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.conftest import Run, external, finish_one

pytestmark = pytest.mark.slow


def test_a_failed_trial_is_retried(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, failures={"max_retries": 0, "max_failed_trials": 5})["name"])
    trial = finish_one(url, name, {"outcome": "failed", "error": {"kind": "user_error", "message": "no luck"}})
    assert run("retry", trial).out == f"{trial} is queued again.\n"
    assert httpx.get(f"{url}/v1/trials/{trial}").json()["status"] == "queued"


def test_all_failed_trials_of_an_experiment_are_retried(run: Run, project: Path, url: str) -> None:
    failures = {"max_retries": 0, "max_failed_trials": 5}
    limits = {"max_trials": 4}
    name = str(external(run, project, failures=failures, limits=limits, tags={"of": "retries"})["name"])
    failed: dict[str, object] = {"outcome": "failed", "error": {"kind": "user_error", "message": "no luck"}}
    completed: dict[str, object] = {"outcome": "completed"}
    trials = [finish_one(url, name, end) for end in (failed, completed, failed)]
    assert run("retry", name, "--failed").out == f"2 failed trials of {name} queued again.\n"
    statuses = [httpx.get(f"{url}/v1/trials/{one}").json()["status"] for one in trials]
    assert statuses == ["queued", "completed", "queued"]
    assert run("retry", name, "--failed").out == f"{name} has no failed trial.\n"
    assert run("retry", f"{name}#0", "--failed").code == 2
    assert [one["name"] for one in json.loads(run("ls", "--tag", "of=retries", "--json").out)] == [name]
    assert run("ls", "--tag", "of=others").out == "No experiments.\n"
    assert "--tag must be NAME=VALUE" in run("ls", "--tag", "retries").err
