"""Which ends of a process leave its exit code behind: those that it has chosen itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainer.worker.process_end.exit_code import OwnExit, read_exit_code, record_exit_code

START = """
import ctypes, os, signal, sys, threading
from trainer.worker.process_end.exit_code import record_exit_code
print(record_exit_code(sys.argv[1]), flush=True)
assert record_exit_code(sys.argv[1]), "a second attempt of the process"
"""


def ended_by(code: str, tmp_path: Path) -> OwnExit | None:
    """How a process that ends by this code has ended itself."""
    command = [sys.executable, "-c", START + code, str(tmp_path / "worker-1.out")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0, done.stderr
    return read_exit_code(done.stdout.strip())


@pytest.mark.parametrize(
    ("code", "own_exit"),
    [
        ("os._exit(3)", OwnExit(3, "<string>:6")),
        ("os._exit(-1)", OwnExit(255, "<string>:6")),
        ("threading.Thread(target=ctypes.CDLL(None).exit, args=(5,)).start()", OwnExit(5)),
    ],
    ids=["os._exit", "negative", "exit of C in a thread"],
)
def test_a_process_that_ends_itself_leaves_its_exit_code(code: str, own_exit: OwnExit, tmp_path: Path) -> None:
    assert ended_by(code, tmp_path) == own_exit


@pytest.mark.parametrize(
    "code",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "os.abort()",
        # Ray's worker does this when it gets a SIGTERM.
        "sys.exit(1)",
        "os.fork() or os._exit(3)\nos.wait()\nos.kill(os.getpid(), signal.SIGKILL)",
        "os.fork() or sys.exit(3)\nos.wait()\nos.kill(os.getpid(), signal.SIGKILL)",
    ],
    ids=["SIGKILL", "SIGSEGV", "abort", "end of the interpreter", "child", "end of a child's interpreter"],
)
def test_a_process_that_is_killed_and_the_end_of_its_child_leave_none(code: str, tmp_path: Path) -> None:
    assert ended_by(code, tmp_path) is None


def test_without_a_folder_to_write_to_nothing_is_recorded(tmp_path: Path) -> None:
    assert record_exit_code(None) is None
    assert record_exit_code(str(tmp_path / "gone" / "worker-1.out")) is None
    assert read_exit_code(None) is None
    assert read_exit_code(str(tmp_path / "gone")) is None
