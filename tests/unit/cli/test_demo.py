"""`paceline demo` stops its stack however it ends. A small process takes the part of `paceline up`."""

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from service.cli import demo
from service.cli.client.answers import Unreachable
from service.stack.state_file import state_file
from tests.processes import left_alive

STACK = """
import json, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
with open(sys.argv[1] + ".part", "w") as file:
    json.dump({"pid": os.getpid(), "url": "http://127.0.0.1:1", "mlflow_url": None}, file)
os.rename(file.name, sys.argv[1])
time.sleep(100)
"""


class ClosedTerminal(io.StringIO):
    """Fails as a terminal does that has closed, as soon as the stack is ready."""

    def __init__(self, state: Path) -> None:
        super().__init__()
        self.state = state

    def write(self, text: str) -> int:
        if self.state.exists():
            raise OSError(5, "Input/output error")
        return super().write(text)


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    earlier = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)


def test_a_demo_whose_terminal_has_closed_stops_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_file(tmp_path)
    monkeypatch.setattr(demo, "module_command", lambda *_: [sys.executable, "-c", STACK, str(state)])
    with pytest.raises(Unreachable):  # this stack has no service
        demo.run(tmp_path, 0, 0, Console(file=ClosedTerminal(state)), keep=False)
    running = [one for one in psutil.process_iter(["cmdline"]) if str(state) in (one.info["cmdline"] or [])]
    assert not left_alive(running, seconds=0)


def test_a_demo_says_when_its_stack_takes_long_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, output, started = state_file(tmp_path), io.StringIO(), list[subprocess.Popen[bytes]]()
    stack = STACK.replace("signal.default_int_handler", "signal.SIG_IGN")
    monkeypatch.setattr(demo, "module_command", lambda *_: [sys.executable, "-c", stack, str(state)])
    monkeypatch.setattr(demo, "STOP_SECONDS", 0)
    start = subprocess.Popen

    def recorded(*given: Any, **named: Any) -> "subprocess.Popen[bytes]":
        started.append(start(*given, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", recorded)
    with pytest.raises(Unreachable):  # this stack has no service
        demo.run(tmp_path, 0, 0, Console(file=output, width=200), keep=False)
    with started[0] as process:
        process.kill()
    assert f"Process {process.pid} is still stopping the stack after 0 s" in output.getvalue()
