"""`paceline up` runs to its end whatever its terminal can show. A process that sleeps takes the part of its parts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.stack import up
from service.stack.child_process import ChildProcess
from service.stack.orphan_cleanup import CleanupRecord
from service.stack.process_tags import new_tag, tag_environment
from service.stack.supervisor import Component
from service.stack.up_options import Options


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


def test_a_stack_in_a_copied_directory_leaves_the_originals_processes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has the original's record, but another lock file."""
    original, copy, tag = tmp_path / "original", tmp_path / "copy", new_tag()
    original.mkdir()
    environment = os.environ | tag_environment(tag)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], env=environment) as process:
        monkeypatch.setattr(up, "stages_of", lambda *_: shutil.copytree(original, copy) and [])
        monkeypatch.setattr(up, "new_tag", lambda: tag)
        monkeypatch.setattr(up, "kill_tagged", lambda _: None)
        with monkeypatch.context() as alive:
            alive.setattr(CleanupRecord, "clean_up", lambda _: None)
            up.run(Options(original, port=0, mlflow=False), lambda _: None, lifeline=closed_pipe())
        monkeypatch.setattr(up, "new_tag", new_tag)
        monkeypatch.setattr(up, "stages_of", lambda *_: [])
        up.run(Options(copy, port=0, mlflow=False), lambda _: None, lifeline=closed_pipe())
        assert process.poll() is None
        process.kill()


@pytest.mark.parametrize(("lock", "is_cleaned"), [("own", True), ("", True), ("another", False)])
def test_what_a_killed_stack_has_left_in_the_same_directory_is_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, is_cleaned: bool
) -> None:
    """The record of an earlier version has no lock."""
    (tmp_path / "up.lock").touch()
    own = f"{(tmp_path / 'up.lock').stat().st_ino} {tmp_path.resolve()}"
    left = tmp_path / "paceline-left"
    left.mkdir()
    CleanupRecord(new_tag(), str(left), own if lock == "own" else lock).write(tmp_path / "up.cleanup")
    monkeypatch.setattr(up, "stages_of", lambda *_: [])
    up.run(Options(tmp_path, port=0, mlflow=False), lambda _: None, lifeline=closed_pipe())
    assert left.exists() == (not is_cleaned)


def closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading
