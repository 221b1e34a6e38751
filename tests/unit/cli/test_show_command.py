"""`paceline show`: of an experiment that failed, and of a trial."""

import json
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.conftest import Run, external, finish_one, submitted

pytestmark = pytest.mark.slow

TRACEBACK = "Traceback (most recent call last):\n  ...\nValueError: no [luck]"


def test_a_trial_is_shown_with_its_attempts_and_their_errors(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, failures={"max_retries": 1, "max_failed_trials": 0})["name"])
    error = {"kind": "user_error", "message": "ValueError: no [luck]", "traceback": TRACEBACK}
    for _ in range(2):
        trial = finish_one(url, name, {"outcome": "failed", "error": error}, checkpoint="/data/1")
    found = httpx.get(f"{url}/v1/trials/{trial}").json()
    assert json.loads(run("show", trial, "--json").out) == found
    shown = run("show", trial).out
    assert f"0 ({trial}) of {found['experiment_id']}" in shown
    assert f"parameters  lr={found['params']['lr']}\n" in shown
    assert f"source      {found['source']}\n" in shown
    assert "checkpoint  /data/1 (step 2)\n" in shown
    for line in ("failed: user_error\n", "step        2\n", "loss        0.5\n", "/data/1 (step 1)\n", TRACEBACK):
        assert line in shown
    assert shown.count("attempt ") == 2


def test_an_attempt_whose_function_was_not_called_yet_is_starting(run: Run, project: Path, url: str) -> None:
    (project / "train.py").write_text("def train_fn(config): ...\n")
    name = str(submitted(run, project)["name"])
    room = [{"free": {"CPU": 4}, "total": {"CPU": 4}}]
    claimed = httpx.post(f"{url}/v1/agents/{name}/claim", json={"request_id": name, "nodes": room}).json()
    shown = run("show", claimed["trial"]).out
    assert "attempt 1  starting (claimed at " in shown
    lease = {"Authorization": f"Bearer {claimed['lease']['token']}"}
    begun = {"running_seconds": 1.0, "phases": {"data": 0.5}}
    httpx.post(f"{url}/v1/trials/{claimed['trial']}/heartbeat", json=begun, headers=lease).raise_for_status()
    assert f"attempt 1  running, by {name}\n" in run("show", claimed["trial"]).out


def test_an_experiment_is_shown_with_why_it_and_its_trials_failed(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, failures={"max_retries": 0, "max_failed_trials": 0})["name"])
    error = {"kind": "diverged", "message": "the loss is NaN", "traceback": TRACEBACK}
    finish_one(url, name, {"outcome": "failed", "error": error})
    shown = run("show", name).out
    assert "failed: diverged  " in shown
    assert f"traceback       {TRACEBACK}\n" in shown
