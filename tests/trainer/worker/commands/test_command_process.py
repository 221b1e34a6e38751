"""The process of a command: how it ends, and that it never outlives the worker that started it."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes import is_alive
from tests.trainer.conftest import until
from trainer.worker.commands.command_process import KEEPER, CommandProcess, end_of

SECONDS = 120

FAMILY = "sh -c 'setsid sleep 1000 & echo $! > daemon; sleep 1000 & echo $! > child; wait'"
"""A child, and a grandchild in a session of its own, whose parent may die first."""


@contextmanager
def running(*argv: str) -> Iterator[CommandProcess]:
    process = CommandProcess(argv, os.environ, captures=True)
    try:
        yield process
    finally:
        process.close()


def pids(directory: Path, *names: str) -> list[int]:
    def written() -> list[int]:
        texts = [(directory / name).read_text() for name in names if (directory / name).exists()]
        return [int(text) for text in texts if text.strip()] if len(texts) == len(names) else []

    return list(until(lambda: len(written()) == len(names) and written(), "the family runs"))


def all_gone(found: list[int]) -> bool:
    return not any(map(is_alive, found))


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", -11), ("kill -9 $$", -9)])
def test_it_ends_as_the_command_ends(script: str, code: int) -> None:
    with running("sh", "-c", script) as process:
        assert process.wait(SECONDS) == code


def test_ends_are_named() -> None:
    assert [end_of(code) for code in (3, -signal.SIGSEGV, -99)] == ["exit code 3", "SIGSEGV", "signal 99"]


def test_its_output_is_captured() -> None:
    with running("printf", "a\\nb") as process:
        assert process.stdout
        assert process.stdout.read() == b"a\nb"


def test_it_inherits_no_file_of_the_worker() -> None:
    with running("sh", "-c", "ls /proc/$$/fd") as process:
        assert process.stdout
        assert {int(name) for name in process.stdout.read().split()} <= {0, 1, 2, 3}  # 3: the directory that ls reads


def test_a_stop_is_a_sigterm_that_the_command_may_handle() -> None:
    script = "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    with running("sh", "-c", script) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.stop(SECONDS)
        assert process.stdout.read() == b"saved\n"
        assert process.wait(0) == 5


def test_a_command_that_ignores_the_stop_is_killed_with_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running("sh", "-c", f"trap '' TERM; {FAMILY}") as process:
        family = pids(tmp_path, "daemon", "child")
        process.stop(0.1)
        assert not all_gone(family)
    until(lambda: all_gone(family), "the family is gone")


class Waiting(CommandProcess):
    """One that does not end by itself. It notes how long `stop` waits for it, and does not wait."""

    def __init__(self) -> None:
        super().__init__(["sleep", "1000"], os.environ, captures=False)
        self.waits: list[float | None] = []

    def wait(self, seconds: float | None = None) -> int:
        self.waits.append(seconds)
        raise subprocess.TimeoutExpired("sleep", seconds or 0)


@pytest.mark.parametrize(
    ("grace", "knows", "waits"), [(30, True, [10, 20]), (8, True, [4, 4]), (8, False, [0, 8]), (1, True, [0.5, 0.5])]
)
def test_a_command_gets_sigterm_within_its_grace_period(grace: float, knows: bool, waits: list[float]) -> None:
    """The waits before the SIGTERM and after it."""
    process = Waiting()
    process.stop(grace, knows=knows)
    process.close()
    assert process.waits == waits


def test_the_keeper_kills_on_when_a_process_has_just_ended() -> None:
    """The command, which another thread reaps, between the list of the children and the kill."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    functions: dict[str, Any] = {}
    exec(KEEPER.partition("if keeper")[0], functions)  # noqa: S102 - its program is text
    found = iter([[ended.pid], []])
    functions["children"] = lambda: next(found)
    functions["kill_all"]()
    assert list(found) == []


def test_what_the_command_leaves_running_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with running("sh", "-c", "setsid sleep 1000 & echo $! > daemon") as process:
        assert process.wait(SECONDS) == 0
    assert all_gone(pids(tmp_path, "daemon"))


def test_it_dies_with_the_worker(tmp_path: Path) -> None:
    program = f"""
        import os, time
        from trainer.worker.commands.command_process import CommandProcess
        process = CommandProcess(["sh", "-c", {FAMILY!r}], os.environ, captures=False)
        time.sleep(1000)
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])},
    )
    family = pids(tmp_path, "daemon", "child")
    worker.kill()
    worker.wait()
    until(lambda: all_gone(family), "the family is gone")
