"""The demo: what it prints, and that nothing is left running when it ends early."""

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import FREE_PORTS, PACELINE, REPOSITORY, STOP_SECONDS, Demo, left_running, until

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1800)]


def test_the_demo_searches_with_the_same_script(demo: Demo) -> None:
    import torch  # noqa: PLC0415 - heavy

    assert re.search(r"^experiment +digits completed \(max_trials\)$", demo.output, re.MULTILINE)
    assert re.search(r"^best +val_accuracy 0\.9\d+, trial \d+$", demo.output, re.MULTILINE)
    saved = r"^early stop +\d+ trials stopped early, which saved \d+ training steps"
    assert re.search(saved, demo.output, re.MULTILINE)
    assert re.search(r"^MLflow +http://127\.0\.0\.1:\d+", demo.output, re.MULTILINE)
    (checkpoint,) = re.findall(r"^checkpoint +(\S+) \(step (\d+)\)$", demo.output, re.MULTILINE)
    state = torch.load(Path(checkpoint[0], "state.pt"), weights_only=True)
    assert state["epoch"] == int(checkpoint[1])
    assert f"The stack is still running. To stop it: kill {demo.stack.process.pid}" in demo.output


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_demo_that_ends_early_leaves_nothing_running(tmp_path: Path, by: signal.Signals) -> None:
    """Its output is a terminal, which SIGHUP closes."""
    master, slave = pty.openpty()
    command = [*PACELINE, "demo", "--data-dir", str(tmp_path), *FREE_PORTS]
    process = subprocess.Popen(command, stdout=slave, stderr=slave, cwd=REPOSITORY, start_new_session=True)
    os.close(slave)
    until(lambda: len(left_running(tmp_path)) > 2, "the stack's components start")
    if by == signal.SIGHUP:
        os.close(master)

    process.send_signal(by)

    assert process.wait(STOP_SECONDS) == (-by if by == signal.SIGKILL else 128 + by)
    until(lambda: not left_running(tmp_path), "nothing is left", STOP_SECONDS)
    if by != signal.SIGHUP:
        os.close(master)
