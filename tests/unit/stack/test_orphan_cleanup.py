"""A stack that is killed: its guardian ends what it leaves, and where that was killed too, the next stack does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from service.stack.orphan_cleanup import PREFIX, Leftovers
from service.stack.process_tags import VARIABLE, bearing, end_marked, marked, new_mark

SLEEP = [sys.executable, "-c", "import time; time.sleep(100)"]
STACK = """
import os, subprocess, sys, time
from pathlib import Path
from service.stack.orphan_cleanup import Leftovers
from service.stack.process_tags import bearing
from service.stack.child_process import Child

mark, directory = sys.argv[1:]
guardian = Child(lambda: Leftovers(mark, directory).guardian, os.environ, Path(directory, "log"), lifeline=True)
guardian.start()
family = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True);"
    "print('started', flush=True); time.sleep(100)"
)
subprocess.Popen([sys.executable, "-c", family], env={**os.environ, **bearing(mark)}, start_new_session=True)
print(guardian._process.pid, flush=True)
time.sleep(100)
"""


class Stack:
    """A process that runs a guardian, and a child with a child in a session of its own."""

    def __init__(self, mark: str, directory: Path) -> None:
        directory.mkdir()
        self.left = Leftovers(mark, str(directory))
        command = [sys.executable, "-c", STACK, mark, str(directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        lines = sorted([self.process.stdout.readline(), self.process.stdout.readline()])
        self.guardian = psutil.Process(int(lines[0]))
        self.family = marked(mark)
        assert len(self.family) == 2

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(new_mark(), tmp_path / f"{PREFIX}stack")
    with stack.process:
        yield stack
        stack.die()
        end_marked(stack.left.mark)


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=10)[1]


def test_a_killed_stack_leaves_nothing(stack: Stack) -> None:
    stack.process.kill()

    assert gone([*stack.family, stack.guardian])
    assert not Path(stack.left.directory).exists()


def test_what_a_stack_killed_with_its_guardian_left_is_removed_by_the_next(stack: Stack, tmp_path: Path) -> None:
    record = tmp_path / "record"
    stack.left.write(record)
    stack.guardian.kill()
    stack.die()
    assert all(process.is_running() for process in stack.family)

    former = Leftovers.read(record)
    assert former
    former.remove()

    assert gone(stack.family)
    assert not Path(stack.left.directory).exists()


def test_a_stranger_is_spared(tmp_path: Path) -> None:
    mark = new_mark()
    with subprocess.Popen(SLEEP, env=os.environ | {VARIABLE: new_mark()}) as stranger:
        Leftovers(mark, str(tmp_path / PREFIX)).remove()
        assert stranger.poll() is None
        stranger.kill()


def test_a_stack_within_a_stack_goes_with_it() -> None:
    outer = new_mark({})
    inner = new_mark({VARIABLE: outer})
    with subprocess.Popen(SLEEP, env=os.environ | {VARIABLE: inner}) as process:
        end_marked(outer)
        assert process.wait(10) == -9


def test_a_process_that_gives_itself_a_title_is_known_all_the_same() -> None:
    """Ray does so, with a library that takes the room for it from the environment."""
    mark = new_mark()
    program = "import ray._raylet, time; ray._raylet.setproctitle('t' * 3000); print(flush=True); time.sleep(100)"
    command = [sys.executable, "-c", program]
    # First in the environment, where the title would go.
    with subprocess.Popen(command, env=bearing(mark) | os.environ, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert [one.pid for one in marked(mark)] == [process.pid]
        process.kill()


def test_a_directory_that_is_not_a_stacks_is_never_removed(tmp_path: Path) -> None:
    Leftovers(new_mark(), str(tmp_path)).remove()
    assert tmp_path.exists()


@pytest.mark.parametrize("text", [None, "", '{"mark": "1', json.dumps({"pid": 1})])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str | None) -> None:
    record = tmp_path / "record"
    if text is not None:
        record.write_text(text)
    assert Leftovers.read(record) is None
