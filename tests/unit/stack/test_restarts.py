"""Child processes that die, hang or cannot be started are started again."""

import errno
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psutil
import pytest

from service.stack.child_process import ChildProcess
from service.stack.process_tags import Unkillable, kill_tagged
from service.stack.supervisor import MAX_FAILURES, Component, ComponentFailed, Supervisor
from tests.processes import is_alive
from tests.timeouts import PATIENCE_SECONDS, wait_until
from tests.unit.stack.process_tree import SLEEP, Tree, never

pytestmark = pytest.mark.slow


@contextmanager
def supervised(
    component: Component,
    say: Callable[[str], None] = print,
    timeout_seconds: float = PATIENCE_SECONDS,
    **options: float,
) -> Iterator[None]:
    stopping = threading.Event()
    supervisor = Supervisor([[component]], stopping.is_set, say, first_delay_seconds=0, **options)

    def run() -> None:
        supervisor.start(timeout_seconds)
        supervisor.supervise()

    watching = threading.Thread(target=run)
    watching.start()
    try:
        yield
    finally:
        stopping.set()
        watching.join()


def is_suspended(pids: list[int]) -> bool:
    """The newest process; one that has not started yet, or has ended, is not suspended."""
    with suppress(psutil.NoSuchProcess):
        return bool(pids) and psutil.Process(pids[-1]).status() == psutil.STATUS_STOPPED
    return False


def test_a_component_that_died_is_restarted(tree: Tree) -> None:
    stopping, lines = threading.Event(), list[str]()
    supervisor = Supervisor(
        [[tree.component("worker", f"import os; print(os.getpid(), flush=True); {SLEEP}")]],
        stopping.is_set,
        lines.append,
    )
    supervisor.start(timeout_seconds=PATIENCE_SECONDS)
    watching = threading.Thread(target=supervisor.supervise)
    watching.start()
    wait_until(lambda: len(tree.pids("worker")) == 1)

    psutil.Process(tree.pids("worker")[0]).kill()
    wait_until(lambda: len(tree.pids("worker")) == 2)

    stopping.set()
    watching.join()
    assert lines == ["worker ended with code -9; restarting it"]


def test_a_component_that_never_gets_ready_ends_the_stack_with_its_last_lines(tree: Tree) -> None:
    component = tree.component("worker", "raise SystemExit('out of luck')", is_ready=lambda: False)
    supervisor = Supervisor([[component]], never, print, first_delay_seconds=0)
    component.start()

    with pytest.raises(
        ComponentFailed, match=r"worker ended with code 1, for the 4th time before.*\n(.*\n)*.*out of luck"
    ):
        supervisor.supervise()


def test_a_component_that_is_killed_repeatedly_is_restarted_each_time(tree: Tree) -> None:
    program = f"import os; print(os.getpid(), flush=True); {SLEEP}"
    with supervised(tree.component("worker", program, is_ready=lambda: False)):
        for killed_count in range(6):
            wait_until(partial(tree.has_printed, "worker", killed_count + 1))
            psutil.Process(tree.pids("worker")[-1]).kill()
        wait_until(lambda: len(tree.pids("worker")) == 7)


def test_a_component_that_cannot_be_started_again_for_a_while_is_tried_until_it_can(tree: Tree) -> None:
    starts = itertools.count()

    def command() -> list[str]:
        if 1 <= next(starts) <= 2 * MAX_FAILURES:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return [sys.executable, "-c", f"import os; print(os.getpid(), flush=True); {SLEEP}"]

    component, lines = Component("worker", tree.child_of("worker", command), lambda: True), list[str]()
    with supervised(component, say=lines.append):
        wait_until(lambda: tree.has_printed("worker", 1) and component.was_ready)
        psutil.Process(tree.pids("worker")[0]).kill()
        wait_until(lambda: tree.has_printed("worker", 2))
    assert lines[1].startswith("worker could not be started ([Errno 11] Resource temporarily unavailable)")


def test_a_component_that_cannot_be_started_again_for_long_ends_the_stack(tree: Tree) -> None:
    starts = itertools.count()

    def command() -> list[str]:
        if next(starts):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return [sys.executable, "-c", SLEEP]

    component = Component("worker", tree.child_of("worker", command), lambda: True)
    supervisor = Supervisor([[component]], never, print, first_delay_seconds=0)
    supervisor.start(timeout_seconds=0)
    tree.children[0].kill()
    with pytest.raises(ComponentFailed, match=r"worker could not be started .* for 0 s"):
        supervisor.supervise()


def test_a_component_that_can_never_be_started_ends_the_stack_without_its_log(tree: Tree) -> None:
    (tree.directory / "file").touch()
    child = ChildProcess(lambda: ["true"], os.environ, tree.directory / "file" / "log")
    supervisor = Supervisor([[Component("worker", child, lambda: True)]], never, print, first_delay_seconds=0)
    with pytest.raises(ComponentFailed, match=r"worker could not be started .*, for the 4th time"):
        supervisor.start(timeout_seconds=PATIENCE_SECONDS)


def test_a_component_waits_for_processes_of_its_last_run_that_survive_a_kill(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()

    def kill(tag: str) -> None:
        if next(looks) < 2:
            raise Unkillable("these processes survived SIGKILL: 1")
        kill_tagged(tag)

    component = tree.component("worker", f"import os; print(os.getpid(), flush=True); {SLEEP}")
    lines = list[str]()
    with supervised(component, say=lines.append):
        wait_until(lambda: tree.has_printed("worker", 1))
        monkeypatch.setattr("service.stack.child_process.kill_tagged", kill)
        psutil.Process(tree.pids("worker")[0]).kill()
        wait_until(lambda: tree.has_printed("worker", 2))
    assert lines[1].startswith("worker could not be started (these processes survived SIGKILL: 1)")


def test_a_component_that_hangs_is_restarted(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.stack.supervisor.HEALTH_CHECK_SECONDS", 0)
    program = f"import os; print(os.getpid(), flush=True); {SLEEP}"
    component = tree.component("worker", program)
    component.is_healthy = lambda: not is_suspended(tree.pids("worker"))
    with supervised(component, max_unhealthy_seconds=0.5):
        wait_until(lambda: len(tree.pids("worker")) == 1)
        psutil.Process(tree.pids("worker")[0]).suspend()
        wait_until(lambda: len(tree.pids("worker")) == 2)
    assert not is_alive(tree.pids("worker")[0])


def test_a_restarted_component_may_take_longer_to_start_than_a_ready_one_to_answer(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.stack.supervisor.HEALTH_CHECK_SECONDS", 0)
    runs, looks = list[int](), itertools.count()

    def command() -> list[str]:
        runs.append(1)
        return [sys.executable, "-c", f"import os; print(os.getpid(), flush=True); {SLEEP}"]

    def answers() -> bool:
        return len(runs) == 1 or next(looks) > 5

    component, lines = Component("worker", tree.child_of("worker", command), answers, is_healthy=answers), list[str]()
    with supervised(component, say=lines.append, max_unhealthy_seconds=0):
        wait_until(lambda: tree.has_printed("worker", 1) and component.was_ready)
        psutil.Process(tree.pids("worker")[0]).kill()
        wait_until(lambda: tree.has_printed("worker", 2) and component.was_ready)
    assert lines == ["worker ended with code -9; restarting it"]


def test_a_restarted_component_that_never_answers_is_restarted_again_and_ends_no_stack(tree: Tree) -> None:
    program = f"import os; print(os.getpid(), flush=True); {SLEEP}"
    component = tree.component("worker", program)
    component.is_healthy = lambda: len(tree.pids("worker")) == 1
    lines = list[str]()
    with supervised(component, say=lines.append, timeout_seconds=0):
        wait_until(lambda: tree.has_printed("worker", 1) and component.was_ready)
        psutil.Process(tree.pids("worker")[0]).kill()
        wait_until(lambda: len(lines) > MAX_FAILURES + 1)
    assert lines[1].startswith("worker has not answered for 0 s; restarting it")


def test_a_restarted_component_without_a_health_check_is_restarted_again_if_no_other_is_away(tree: Tree) -> None:
    component = tree.component("worker", f"import os; print(os.getpid(), flush=True); {SLEEP}")
    lines = list[str]()
    with supervised(component, say=lines.append, timeout_seconds=0):
        wait_until(lambda: tree.has_printed("worker", 1) and component.was_ready)
        component.is_ready = never
        psutil.Process(tree.pids("worker")[0]).kill()
        wait_until(lambda: len(lines) > MAX_FAILURES + 1)
    assert lines[1].startswith("worker has not answered for 0 s; restarting it")


def test_a_restarted_component_that_is_healthy_need_not_be_ready(tree: Tree) -> None:
    """As the service while the storage is away, which makes it not ready."""
    component = tree.component("worker", f"import os; print(os.getpid(), flush=True); {SLEEP}")
    component.is_healthy = lambda: True
    lines = list[str]()
    with supervised(component, say=lines.append):
        wait_until(lambda: tree.has_printed("worker", 1) and component.was_ready)
        component.is_ready = never
        psutil.Process(tree.pids("worker")[0]).kill()
        wait_until(lambda: tree.has_printed("worker", 2) and component.was_ready)
    assert lines == ["worker ended with code -9; restarting it"]
