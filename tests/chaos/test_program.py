"""The program of the load's commands: what it prints, journals and saves."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.evidence import journals
from tests.chaos.evidence.collect import fault_of
from tests.chaos.experiments import command
from tests.chaos.submission import USER_CODE
from tests.chaos.user_code.curves import loss

RUN = Path("command-0-x-0123456789ab") / "trial-3-attempt-2"
PARAMS = {"x": 0.4, "width": 2}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    return directory


def test_a_report_of_the_program_is_that_of_its_journal_and_its_curve(tmp_path: Path, checkpoint: Path) -> None:
    reports = _reports(_run(tmp_path, checkpoint, steps=3))
    lines = journals.read(tmp_path)
    assert [(int(one["step"]), float(one["made"])) for one in reports] == [
        (line.step, line.made) for line in lines if line.did == "report"
    ]
    assert [float(one["loss"]) for one in reports] == [loss(PARAMS, step) for step in (1, 2, 3)]
    assert {(line.experiment_id, line.trial, line.attempt) for line in lines} == {("x-0123456789ab", 3, 2)}


def test_the_program_continues_from_its_checkpoint(tmp_path: Path, checkpoint: Path) -> None:
    _run(tmp_path, checkpoint, steps=2)
    assert fault_of(str(checkpoint), 2) is None
    again = _reports(_run(tmp_path, checkpoint, steps=4))
    assert [int(one["step"]) for one in again] == [3, 4]
    [resumed] = [line for line in journals.read(tmp_path) if line.did == "resumed"]
    assert (resumed.step, resumed.sound) == (2, True)


def _run(tmp_path: Path, checkpoint: Path, steps: int) -> str:
    """Run the program in a directory with the name of its attempt; returns what it prints."""
    directory = tmp_path / RUN
    directory.mkdir(parents=True, exist_ok=True)
    config = {**command("command-0", str(tmp_path), seed=1, trials=1, parallelism=1).spec["config"], **PARAMS}
    told = {"PACELINE_CONFIG": json.dumps(config | {"steps": steps, "pause": 0.0})}
    env = {**os.environ, **told, "PACELINE_CHECKPOINT_DIR": str(checkpoint)}
    program = [sys.executable, str(USER_CODE / "program.py")]
    return subprocess.run(program, cwd=directory, env=env, check=True, capture_output=True, text=True).stdout


def _reports(output: str) -> list[dict[str, str]]:
    """What the expression of the experiment finds in the output."""
    [expression] = command("command-0", "/journal", seed=1, trials=1, parallelism=1).spec["trainer"]["metrics"][
        "stdout"
    ]
    return [found.groupdict() for found in map(re.compile(expression).search, output.splitlines()) if found]
