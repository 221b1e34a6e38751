"""A whole stack on free ports, as `paceline up` runs it. Nothing is left running afterwards."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from service.cli.client.client import Client
from service.stack.state_file import read_state
from tests.processes import left_alive
from tests.timeouts import wait_until

REPOSITORY = Path(__file__).parents[2]
PACELINE = [sys.executable, "-m", "service.cli"]
FREE_PORTS = ["--port", "0", "--mlflow-port", "0"]
SECRET = ("E2E_SECRET", "s3cr3t-of-the-agent/42")
"""A variable of the stack's own environment."""

START_SECONDS = 360
STOP_SECONDS = 120
COMMAND_SECONDS = 600
"""How long commands may take on a busy machine."""


def until(condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
    wait_until(condition, seconds, what)


@dataclass
class Stack:
    process: psutil.Process
    data_dir: Path
    url: str
    mlflow_url: str

    def experiment(self, name: str) -> dict[str, Any]:
        with Client(self.url) as client:
            return client.experiment(name)

    def wait_for_mirror(self) -> None:
        """Wait also for what earlier tests have left to it. On a busy machine, MLflow takes a few events a second."""

        def has_caught_up() -> bool:
            return bool(httpx.get(f"{self.url}/readyz", timeout=COMMAND_SECONDS).json()["mlflow_lag"] == 0)

        until(has_caught_up, "the mirror has caught up", COMMAND_SECONDS)

    def paceline(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line against this stack."""
        command = [*PACELINE, *arguments, "--url", self.url]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=REPOSITORY, timeout=COMMAND_SECONDS, check=False
        )

    def processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def stop(self, by: signal.Signals = signal.SIGINT) -> int:
        """Return the exit code; fail when a process of the stack outlives it."""
        processes = self.processes()
        self.process.send_signal(by)
        code = self.process.wait(STOP_SECONDS)
        left = left_alive(processes)
        assert not left, f"left running: {left}"
        return code


@contextmanager
def running_stack(data_dir: Path) -> Iterator[Stack]:
    command = [*PACELINE, "up", "--data-dir", str(data_dir), *FREE_PORTS]
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir / "up.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        until(lambda: read_state(data_dir) is not None or process.poll() is not None, "the stack is up", START_SECONDS)
        state = read_state(data_dir)
        assert state, log.read_text()
        yield Stack(psutil.Process(process.pid), data_dir, state["url"], state["mlflow_url"])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)


@dataclass
class Demo:
    """What `paceline demo --keep` printed, and the stack that it left running."""

    output: str
    stack: Stack


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    data_dir = tmp_path_factory.mktemp("demo")
    command = [*PACELINE, "demo", "--keep", "--data-dir", str(data_dir), *FREE_PORTS]
    env = os.environ | dict([SECRET])
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env=env, timeout=COMMAND_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    state = read_state(data_dir)
    assert state, ended.stdout
    up = psutil.Process(state["pid"])
    yield Demo(ended.stdout, Stack(up, data_dir, state["url"], state["mlflow_url"]))
    up.send_signal(signal.SIGINT)
    until(lambda: not left_running(data_dir), "the stack stops", STOP_SECONDS)


@pytest.fixture(scope="package")
def stack(demo: Demo) -> Stack:
    """Return the demo's stack, since a stack of their own costs tests half a minute."""
    return demo.stack


def left_running(data_dir: Path) -> list[psutil.Process]:
    """Return the processes whose command names the directory; a stack's components and the supervisor do."""
    return [one for one in psutil.process_iter(["cmdline"]) if str(data_dir) in str(one.info["cmdline"])]
