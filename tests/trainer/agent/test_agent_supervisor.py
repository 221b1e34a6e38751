"""The supervisor of an agent, with small programs in the agent's place. Needs no Ray."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from trainer.agent.supervisor import CLUSTER_LOST, REFUSED

KEEP = """
import logging, os, sys
from trainer.agent.supervisor import AgentSupervisor
logging.basicConfig(level=logging.INFO)
sys.exit(AgentSupervisor([sys.executable, *sys.argv[1:]], dict(os.environ)).run())
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


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def write_pid(path: Path) -> str:
    """The file appears with the whole process id in it."""
    part = f"{path}.part"
    return f"(pathlib.Path({part!r}).write_text(str(os.getpid())), os.replace({part!r}, {str(path)!r})); "


def test_an_agent_that_loses_its_cluster_is_restarted_however_it_ends(plan: Path) -> None:
    ends = (f"sys.exit({CLUSTER_LOST})", "os.abort()", "os._exit(1)", "sys.exit(0)")
    with supervised(plan, *ends) as process:
        said = process.communicate(timeout=30)[1].splitlines()
    assert process.returncode == 0
    assert plan.read_text() == ""
    assert [line.partition("supervisor:")[2] for line in said] == [
        "the agent has no cluster; starting it again in 0.5 s",
        "the agent's process was ended by SIGABRT; starting it again in 1 s",
        "the agent's process ended with code 1, as Ray ends it when its node is gone; starting it again in 2 s",
    ]


def test_an_agent_that_the_service_refuses_is_not_restarted(plan: Path) -> None:
    with supervised(plan, f"sys.stderr.write('error: no such token'); sys.exit({REFUSED})", "sys.exit(0)") as process:
        assert process.communicate(timeout=30)[1] == "error: no such token"
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
    with supervised(plan, f"{handler}time.sleep(60)") as process:
        until(started.exists)
        process.send_signal(number)
        assert process.wait(20) == 0
    assert left.exists()


def test_a_second_signal_kills_an_agent_that_does_not_leave(plan: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with supervised(
        plan, f"import signal; signal.signal(15, signal.SIG_IGN); {write_pid(started)}time.sleep(60)"
    ) as process:
        until(started.exists)
        process.terminate()
        assert process.stderr is not None
        assert "SIGTERM: stopping" in process.stderr.readline()
        process.terminate()
        assert process.wait(10) == 0
    until(lambda: not psutil.pid_exists(int(started.read_text())))


def test_a_killed_parent_closes_its_agents_input(plan: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with supervised(plan, f"{AS_LONG_AS_THE_PARENT}{write_pid(started)}time.sleep(60)") as process:
        until(started.exists)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(int(started.read_text())))
