"""A trial is named by its id, or by its experiment and its number, wherever a command takes one."""

import json
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.conftest import Run, external, finish_one

pytestmark = pytest.mark.slow


def test_commands_take_a_trial_by_its_number(run: Run, project: Path, url: str) -> None:
    name = str(external(run, project, limits={"max_trials": 3})["name"])
    ids = [finish_one(url, name, {"outcome": "completed"}) for _ in range(2)]
    for number, trial in enumerate(ids):
        assert json.loads(run("show", f"{name}#{number}", "--json").out)["id"] == trial
        assert run("reports", f"{name}#{number}").out == run("reports", trial).out
    asked = httpx.post(f"{url}/v1/experiments/{name}/ask").json()["trial"]
    assert run("stop", f"{name}#2").code == 0
    assert httpx.get(f"{url}/v1/trials/{asked}").json()["stopping"]
    assert httpx.get(f"{url}/v1/experiments/{name}").json()["status"] == "running"


def test_a_number_that_no_trial_has_is_an_error(run: Run, project: Path) -> None:
    name = str(external(run, project)["name"])
    for command in ("show", "logs", "stop", "retry", "fetch"):
        ended = run(command, f"{name}#7")
        assert ended.code == 2
        assert ended.err == f"error: experiment {name} has no trial 7; `paceline show {name}` lists its trials\n"
    assert run("logs", "nothing#0").err.startswith("error: there is no experiment ")
