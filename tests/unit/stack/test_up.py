"""`paceline up` runs to its end whatever its terminal can show. A process that sleeps takes the part of its parts."""

import os
import sys
from pathlib import Path

import pytest

from service.stack import up
from service.stack.child_process import ChildProcess
from service.stack.options import Options
from service.stack.supervisor import Component


def test_a_terminal_that_cannot_show_all_characters_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.touch()
    child = ChildProcess(lambda: [sys.executable, "-c", "import time; time.sleep(100)"], os.environ, log)
    monkeypatch.setattr(up, "stages_of", lambda *_: [[Component("part", child, lambda: True)]])
    watched, held = os.pipe()

    def say(text: str) -> None:
        text.encode("ascii")
        if "ready" in text:
            os.close(held)

    up.run(Options(tmp_path, port=0, mlflow_port=0), say, lifeline=watched)

    os.close(watched)
    assert child.exit_code is not None
