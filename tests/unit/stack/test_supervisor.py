"""Child processes: started in order, revived, and gone at the end with everything they started."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from service.stack.child_process import GIVING_WAY, Child
from service.stack.supervisor import Part, PartFailed, Supervisor

SLEEP = "import time; time.sleep(100)"


class Tree:
    """Makes children that write their pids where the test can read them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[Child] = []

    def child(self, name: str, program: str) -> Child:
        log = self.directory / f"{name}.log"
        log.touch()
        child = Child(lambda: [sys.executable, "-c", program], os.environ, log)
        self.children.append(child)
        return child

    def part(self, name: str, program: str, ready: Callable[[], bool] = lambda: True) -> Part:
        return Part(name, self.child(name, program), ready, grace_seconds=5)

    def pids(self, name: str) -> list[int]:
        """What `name` has printed so far, as process ids."""
        return [int(line) for line in (self.directory / f"{name}.log").read_text().split()]

    def has_printed(self, name: str, count: int) -> bool:
        return len(self.pids(name)) == count


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    yield tree
    for child in tree.children:
        child.kill()


@contextmanager
def watched_over(part: Part, **options: float) -> Iterator[None]:
    stopping = threading.Event()
    supervisor = Supervisor([[part]], stopping.is_set, print, first_delay_seconds=0, **options)
    part.start()
    watching = threading.Thread(target=supervisor.watch_over)
    watching.start()
    try:
        yield
    finally:
        stopping.set()
        watching.join()


def never() -> bool:
    return False


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def runs(pids: list[int]) -> bool:
    """One that is gone answers no more than one that was stopped."""
    with suppress(psutil.NoSuchProcess):
        return bool(pids) and psutil.Process(pids[-1]).status() != psutil.STATUS_STOPPED
    return False


def test_stopping_a_child_leaves_none_of_its_descendants(tree: Tree) -> None:
    program = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); {SLEEP}"])
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); {SLEEP}"], start_new_session=True)
print(os.getpid(), flush=True)
time.sleep(100)
"""
    child = tree.child("parent", program)
    child.start()
    until(lambda: len(tree.pids("parent")) == 3)

    child.stop(grace_seconds=5)

    until(lambda: not any(map(lives, tree.pids("parent"))))


def test_what_a_crashed_child_left_behind_is_killed_too(tree: Tree) -> None:
    program = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); {SLEEP}"])
"""
    child = tree.child("parent", program)
    child.start()
    until(lambda: child.exit_code is not None and len(tree.pids("parent")) == 1)
    assert lives(tree.pids("parent")[0])

    child.stop(grace_seconds=5)

    until(lambda: not lives(tree.pids("parent")[0]))


def test_a_child_that_ignores_sigterm_is_killed(tree: Tree) -> None:
    program = (
        f"import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); {SLEEP}"
    )
    child = tree.child("stubborn", program)
    child.start()
    until(lambda: len(tree.pids("stubborn")) == 1)

    child.stop(grace_seconds=0.1)

    assert child.exit_code == -9


def test_a_stage_starts_when_the_one_before_is_ready(tree: Tree, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = tree.part("first", f"from pathlib import Path; Path({str(mark)!r}).touch(); {SLEEP}", mark.exists)
    second = tree.part(
        "second", f"from pathlib import Path; print(int(Path({str(mark)!r}).exists()), flush=True); {SLEEP}"
    )

    Supervisor([[first], [second]], never, print).start(timeout_seconds=20)

    until(lambda: tree.pids("second") == [1])


def test_a_part_that_ends_while_starting_is_told_with_its_last_lines(tree: Tree) -> None:
    part = tree.part("broken", "raise SystemExit('no such disk')", ready=lambda: False)

    with pytest.raises(PartFailed, match=r"broken ended with code 1 while starting.*\n.*broken \| no such disk"):
        Supervisor([[part]], never, print).start(timeout_seconds=20)


def test_a_part_that_is_never_ready_is_told(tree: Tree) -> None:
    part = tree.part("slow", SLEEP, ready=lambda: False)

    with pytest.raises(PartFailed, match="slow was not ready after"):
        Supervisor([[part]], never, print).start(timeout_seconds=0.1)


def test_being_told_to_stop_while_starting_ends_the_wait(tree: Tree) -> None:
    stopping = threading.Event()

    def ready() -> bool:
        stopping.set()
        return False

    parts = [tree.part("slow", SLEEP, ready), tree.part("next", SLEEP)]
    Supervisor([[part] for part in parts], stopping.is_set, print).start(timeout_seconds=100)

    assert [part.started_at is not None for part in parts] == [True, False]


def test_a_part_that_died_is_started_again(tree: Tree) -> None:
    stopping, said = threading.Event(), list[str]()
    supervisor = Supervisor(
        [[tree.part("worker", f"import os; print(os.getpid(), flush=True); {SLEEP}")]], stopping.is_set, said.append
    )
    supervisor.start(timeout_seconds=20)
    watching = threading.Thread(target=supervisor.watch_over)
    watching.start()
    until(lambda: len(tree.pids("worker")) == 1)

    psutil.Process(tree.pids("worker")[0]).kill()
    until(lambda: len(tree.pids("worker")) == 2)

    stopping.set()
    watching.join()
    assert said == ["worker ended with code -9; starting it again"]


def test_a_part_that_never_gets_ready_ends_the_stack_with_its_last_lines(tree: Tree) -> None:
    part = tree.part("worker", "raise SystemExit('out of luck')", ready=lambda: False)
    supervisor = Supervisor([[part]], never, print, first_delay_seconds=0)
    part.start()

    with pytest.raises(PartFailed, match=r"worker ended with code 1, for the 4th time before.*\n(.*\n)*.*out of luck"):
        supervisor.watch_over()


def test_a_part_that_is_killed_again_and_again_comes_back_each_time(tree: Tree) -> None:
    program = f"import os; print(os.getpid(), flush=True); {SLEEP}"
    with watched_over(tree.part("worker", program, ready=lambda: False)):
        for killed_count in range(6):
            until(partial(tree.has_printed, "worker", killed_count + 1))
            psutil.Process(tree.pids("worker")[-1]).kill()
        until(lambda: len(tree.pids("worker")) == 7)


def test_a_part_that_hangs_is_started_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.stack.supervisor.ASK_SECONDS", 0)
    program = f"import os; print(os.getpid(), flush=True); {SLEEP}"
    part = tree.part("worker", program)
    part.answers = lambda: runs(tree.pids("worker"))
    with watched_over(part, longest_silence_seconds=0.5):
        until(lambda: len(tree.pids("worker")) == 1)
        psutil.Process(tree.pids("worker")[0]).suspend()
        until(lambda: len(tree.pids("worker")) == 2)
    assert not lives(tree.pids("worker")[0])


def test_parts_stop_in_reverse_order(tree: Tree, tmp_path: Path) -> None:
    log = tmp_path / "order"

    def program(name: str) -> str:
        leave = f"lambda *_: (open({str(log)!r}, 'a').write({name!r}), exit())"
        return f"import signal; signal.signal(signal.SIGTERM, {leave}); print(1, flush=True); {SLEEP}"

    names = ["a", "b", "c"]
    supervisor = Supervisor([[tree.part(name, program(name))] for name in names], never, print)
    supervisor.start(timeout_seconds=20)
    until(lambda: all(tree.pids(name) for name in names))

    supervisor.stop()

    assert log.read_text() == "cba"


def test_what_gives_way_does_so_with_all_it_has_started_and_not_before_it_is_ready(tree: Tree) -> None:
    print_pid = f"print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid, flush=True)"
    parent = f"import subprocess, sys; {print_pid}; {SLEEP}"
    served = threading.Event()
    part = tree.part("server", parent, served.is_set)
    part.gives_way = True
    part.start()
    until(lambda: tree.has_printed("server", 1))
    child = psutil.Process(*tree.pids("server"))
    family = [child, psutil.Process(child.ppid())]
    part.look()
    assert {one.nice() for one in family} == {psutil.Process().nice()}
    served.set()
    part.look()
    assert {one.nice() for one in family} == {GIVING_WAY}
