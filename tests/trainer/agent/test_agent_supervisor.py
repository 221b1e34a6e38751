"""The supervisor of an agent, with small programs in the agent's place. Needs no Ray."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import left_alive
from tests.trainer.conftest import until
from trainer.agent.supervisor import CLUSTER_LOST, REFUSED

pytestmark = pytest.mark.slow

WHY_ENDED = "its last lines say why, or Ray has ended it because its node is gone"

KEEP = """
import logging, os, sys
from trainer.agent import supervisor
logging.basicConfig(level=logging.INFO)
supervisor.STOP_SECONDS = 600.0
sys.exit(supervisor.AgentSupervisor([sys.executable, *sys.argv[1:]], dict(os.environ)).run())
"""

# Each start takes the next line of the file named by its argument.
PLAYED = """
import os, pathlib, sys, time
plan = pathlib.Path(sys.argv[1])
line, _, rest = plan.read_text().partition("\\n")
plan.write_text(rest)
exec(line)
"""
AS_LONG_AS_THE_PARENT = "import threading; threading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start(); "

SECONDS = 120


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "plan"


@contextmanager
def supervised(plan: Path, *lines: str) -> Iterator[subprocess.Popen[str]]:
    plan.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-c", KEEP, "-c", PLAYED, str(plan)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def write_pid(path: Path) -> str:
    """The file appears with the whole process id in it."""
    part = f"{path}.part"
    return f"(pathlib.Path({part!r}).write_text(str(os.getpid())), os.replace({part!r}, {str(path)!r})); "


def test_an_agent_that_loses_its_cluster_is_restarted_however_it_ends(plan: Path) -> None:
    ends = (f"sys.exit({CLUSTER_LOST})", "os.abort()", "os._exit(1)", "sys.exit(0)")
    with supervised(plan, *ends) as process:
        said = process.communicate(timeout=SECONDS)[1].splitlines()
    assert process.returncode == 0
    assert plan.read_text() == ""
    assert [line.partition("supervisor:")[2] for line in said] == [
        "the agent has no cluster; starting it again in 0.5 s",
        "the agent's process was ended by SIGABRT; starting it again in 1 s",
        f"the agent's process ended with code 1: {WHY_ENDED}; starting it again in 2 s",
    ]


def test_an_agent_that_the_service_refuses_is_not_restarted(plan: Path) -> None:
    with supervised(plan, f"sys.stderr.write('error: no such token'); sys.exit({REFUSED})", "sys.exit(0)") as process:
        assert process.communicate(timeout=SECONDS)[1] == "error: no such token"
    assert process.returncode == 1
    assert plan.read_text() == "sys.exit(0)\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_lets_the_agent_leave_by_itself(
    plan: Path, tmp_path: Path, number: signal.Signals
) -> None:
    started, left = tmp_path / "started", tmp_path / "left"
    handler = (
        f"import signal; signal.signal(15, lambda *_: ({write_pid(left)[:-2]}, sys.exit(0))); {write_pid(started)}"
    )
    with supervised(plan, f"{handler}time.sleep(600)") as process:
        until(started.exists, "the agent starts")
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
    assert left.exists()


def test_a_second_signal_kills_an_agent_that_does_not_leave(plan: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with supervised(
        plan, f"import signal; signal.signal(15, signal.SIG_IGN); {write_pid(started)}time.sleep(600)"
    ) as process:
        until(started.exists, "the agent starts")
        process.terminate()
        assert process.stderr is not None
        assert "SIGTERM: stopping" in process.stderr.readline()
        process.terminate()
        assert process.wait(SECONDS) == 0
    assert not left_alive([int(started.read_text())])


def test_a_killed_parent_closes_its_agents_input(plan: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with supervised(plan, f"{AS_LONG_AS_THE_PARENT}{write_pid(started)}time.sleep(600)") as process:
        until(started.exists, "the agent starts")
        os.kill(process.pid, signal.SIGKILL)
        assert not left_alive([int(started.read_text())])
