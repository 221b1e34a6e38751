"""Cleanup after a killed stack: by its guardian, or by the next stack when the guardian was killed too."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from service.stack import process_tags
from service.stack.mlflow_command import mlflow_server_command
from service.stack.orphan_cleanup import PREFIX, CleanupRecord
from service.stack.process_tags import VARIABLE, kill_tagged, new_tag, tag_environment, tagged_processes
from tests.processes import is_alive, left_alive
from tests.timeouts import PATIENCE_SECONDS, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(100)"]
STACK = """
import os, subprocess, sys, time
from pathlib import Path
from service.stack.orphan_cleanup import CleanupRecord
from service.stack.process_tags import tag_environment
from service.stack.child_process import ChildProcess

tag, directory = sys.argv[1:]
command = CleanupRecord(tag, directory).guardian_command
guardian = ChildProcess(lambda: command, os.environ, Path(directory, "log"), lifeline=True)
guardian.start()
family = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True);"
    "print('started', flush=True); time.sleep(100)"
)
subprocess.Popen([sys.executable, "-c", family], env={**os.environ, **tag_environment(tag)}, start_new_session=True)
print(guardian._process.pid, flush=True)
time.sleep(100)
"""


class Stack:
    """A process with a guardian, and with a child whose own child is in another session."""

    def __init__(self, tag: str, directory: Path) -> None:
        directory.mkdir()
        self.record = CleanupRecord(tag, str(directory))
        command = [sys.executable, "-c", STACK, tag, str(directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        lines = sorted([self.process.stdout.readline(), self.process.stdout.readline()])
        self.guardian = psutil.Process(int(lines[0]))
        self.family = wait_until(lambda: both(tagged_processes(tag)))

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


def both(found: list[psutil.Process]) -> list[psutil.Process]:
    """The child's child may not have its environment yet: then there is one."""
    return found if len(found) == 2 else []


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(new_tag(), tmp_path / f"{PREFIX}stack")
    with stack.process:
        yield stack
        stack.die()
        kill_tagged(stack.record.tag)


def test_a_killed_stack_leaves_nothing(stack: Stack) -> None:
    stack.process.kill()

    assert not left_alive([*stack.family, stack.guardian])
    assert not Path(stack.record.directory).exists()


def test_the_next_stack_cleans_up_when_the_guardian_was_killed_too(stack: Stack, tmp_path: Path) -> None:
    record = tmp_path / "record"
    stack.record.write(record)
    stack.guardian.kill()
    stack.die()
    assert all(map(is_alive, stack.family))

    earlier = CleanupRecord.read(record)
    assert earlier
    earlier.clean_up()

    assert not left_alive(stack.family)
    assert not Path(stack.record.directory).exists()


def test_a_process_with_another_tag_is_not_killed(tmp_path: Path) -> None:
    tag = new_tag()
    with subprocess.Popen(SLEEP, env=os.environ | {VARIABLE: new_tag()}) as other:
        CleanupRecord(tag, str(tmp_path / PREFIX)).clean_up()
        assert other.poll() is None
        other.kill()


def test_a_stack_within_a_stack_is_killed_with_it() -> None:
    outer = new_tag({})
    inner = new_tag({VARIABLE: outer})
    with subprocess.Popen(SLEEP, env=os.environ | {VARIABLE: inner}) as process:
        wait_until(lambda: tagged_processes(inner))
        kill_tagged(outer)
        assert process.wait(PATIENCE_SECONDS) == -9


def test_a_killer_that_is_kept_from_running_still_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    tag, looks = new_tag(), itertools.count()
    with subprocess.Popen(SLEEP, env=os.environ | {VARIABLE: tag}) as process:
        wait_until(lambda: tagged_processes(tag))

        def clock() -> float:
            """It is late when it is looked at again; by then the process is killed, or survives."""
            look = next(looks)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5 * look)
            return 100.0 * look

        monkeypatch.setattr(process_tags, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
        kill_tagged(tag)
        assert process.wait(PATIENCE_SECONDS) == -9


@pytest.mark.slow
def test_a_process_that_sets_its_title_keeps_its_tag() -> None:
    """Ray does so, with a library that writes the title over the environment."""
    tag = new_tag()
    program = "import ray._raylet, time; ray._raylet.setproctitle('t' * 3000); print(flush=True); time.sleep(100)"
    command = [sys.executable, "-c", program]
    # First in the environment, where the title would go.
    with subprocess.Popen(command, env=tag_environment(tag) | os.environ, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert [one.pid for one in tagged_processes(tag)] == [process.pid]
        process.kill()


def test_a_directory_without_the_prefix_is_never_removed(tmp_path: Path) -> None:
    CleanupRecord(new_tag(), str(tmp_path)).clean_up()
    assert tmp_path.exists()


@pytest.mark.parametrize("text", [None, "", '{"tag": "1', json.dumps({"pid": 1})])
def test_a_record_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str | None) -> None:
    record = tmp_path / "record"
    if text is not None:
        record.write_text(text)
    assert CleanupRecord.read(record) is None


def test_own_processes_do_not_import_what_lies_in_the_users_folder(tmp_path: Path) -> None:
    """Such as a `trainer.py`, which would hide the package of that name."""
    for name in ("service.py", "trainer.py", "search.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    command = CleanupRecord("tag", str(tmp_path / "nothing")).guardian_command
    assert subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, check=False).returncode == 0
    assert mlflow_server_command(tmp_path / "mlflow", "127.0.0.1", 1)[1] == "-P"
