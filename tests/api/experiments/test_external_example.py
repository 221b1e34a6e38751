"""The example of a program that runs trials by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Api
from tests.timeouts import PATIENCE_SECONDS

EXAMPLE = Path(__file__).parents[3] / "examples/external"

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def test_two_of_the_programs_run_all_trials_and_end_with_the_experiment(service: Api) -> None:
    spec = (EXAMPLE / "experiment.yaml").read_bytes()
    service.post("/v1/experiments", 201, content=spec, headers={"Content-Type": "application/yaml"})
    command = [sys.executable, str(EXAMPLE / "run_trials.py"), "external"]
    env = {**os.environ, "PACELINE_URL": str(service.http.base_url)}
    programs = [subprocess.Popen(command, env=env) for _ in range(2)]
    try:
        assert [program.wait(PATIENCE_SECONDS) for program in programs] == [0, 0]
    finally:
        for program in programs:
            program.kill()
    ended = service.get("/v1/experiments/external")
    assert ended["status"] == "completed"
    statuses = {trial["status"] for trial in service.get("/v1/experiments/external/trials")["items"]}
    assert statuses <= {"completed", "pruned"}
    assert ended["best"]["value"] < 0.1
