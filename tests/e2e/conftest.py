"""A whole stack on free ports, as `paceline up` runs it. Nothing is left running afterwards."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.cli.client import Client
from service.stack.state_file import read_state

REPOSITORY = Path(__file__).parents[2]
PACELINE = [sys.executable, "-m", "service.cli"]
START_SECONDS = 300
STOP_SECONDS = 30


def until(condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


@dataclass
class Stack:
    process: subprocess.Popen[str]
    data_dir: Path
    url: str
    mlflow_url: str

    def experiment(self, name: str) -> dict[str, Any]:
        with Client(self.url) as client:
            return client.experiment(name)

    def paceline(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line against this stack; within two minutes."""
        command = [*PACELINE, *arguments, "--url", self.url]
        return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120, check=False)

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]

    def stop(self, by: signal.Signals = signal.SIGINT) -> int:
        """Return the exit code; fail when a process of the stack outlives it."""
        processes = self.processes()
        self.process.send_signal(by)
        code = self.process.wait(STOP_SECONDS)
        _, left = psutil.wait_procs(processes, timeout=2)
        assert not left, f"left running: {left}"
        return code


@contextmanager
def running_stack(data_dir: Path) -> Iterator[Stack]:
    command = [*PACELINE, "up", "--data-dir", str(data_dir), "--port", "0", "--mlflow-port", "0"]
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir / "up.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        until(lambda: read_state(data_dir) is not None or process.poll() is not None, "the stack is up", START_SECONDS)
        state = read_state(data_dir)
        assert state, log.read_text()
        yield Stack(process, data_dir, state["url"], state["mlflow_url"])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack
