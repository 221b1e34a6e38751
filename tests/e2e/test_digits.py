"""The same training file runs by itself under Ray Train, and unchanged under Paceline."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import PACELINE, REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.ray]


def test_the_script_trains_by_itself() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    script = REPOSITORY / "examples/digits/train.py"
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=500, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^val_accuracy 0\.[89]\d+, checkpoint ", ended.stdout, re.MULTILINE)


def test_the_demo_searches_with_the_same_script_and_leaves_nothing_running(tmp_path: Path) -> None:
    import torch  # noqa: PLC0415 - heavy

    command = [*PACELINE, "demo", "--data-dir", str(tmp_path), "--port", "0", "--mlflow-port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=500, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^experiment +digits completed \(max_trials\)$", ended.stdout, re.MULTILINE)
    assert re.search(r"^best +val_accuracy 0\.9\d+, trial \d+$", ended.stdout, re.MULTILINE)
    assert re.search(
        r"^early stop +\d+ trials stopped early, which saved \d+ training steps", ended.stdout, re.MULTILINE
    )
    assert re.search(r"^MLflow +http://127\.0\.0\.1:\d+", ended.stdout, re.MULTILINE)
    (checkpoint,) = re.findall(r"^checkpoint +(\S+) \(step (\d+)\)$", ended.stdout, re.MULTILINE)
    state = torch.load(Path(checkpoint[0], "state.pt"), weights_only=True)
    assert state["epoch"] == int(checkpoint[1])
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(process.info["cmdline"])
    ]
