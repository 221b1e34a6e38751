"""The demo's training file runs by itself under Ray Train; `test_demo.py` runs it unchanged under Paceline."""

import os
import re
import subprocess
import sys

import pytest

from tests.e2e.conftest import COMMAND_SECONDS, REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]


def test_the_script_trains_by_itself() -> None:
    # Without the worker processes that Ray starts ahead, which stay idle here.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_prestart_worker_first_driver": "0"}
    script = REPOSITORY / "examples/digits/train.py"
    ended = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^val_accuracy 0\.[89]\d+, checkpoint ", ended.stdout, re.MULTILINE)
