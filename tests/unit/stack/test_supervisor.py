"""Child processes: started in order, restarted, and stopped with all their descendants."""

import errno
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from service.stack.child_process import LOW_PRIORITY, STARTING_PRIORITY, ChildProcess
from service.stack.process_tags import Unkillable, kill_tagged, tagged_processes
from service.stack.supervisor import MAX_FAILURES, Component, ComponentFailed, Supervisor
from tests.processes import is_alive
from tests.timeouts import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow

SLEEP = "import time; time.sleep(100)"


class Tree:
    """Creates children that print process ids where the test can read them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[ChildProcess] = []

    def child(self, name: str, program: str) -> ChildProcess:
        log = self.directory / f"{name}.log"
        log.touch()
        child = ChildProcess(lambda: [sys.executable, "-c", program], os.environ, log)
        self.children.append(child)
        return child

    def component(self, name: str, program: str, is_ready: Callable[[], bool] = lambda: True) -> Component:
        return Component(name, self.child(name, program), is_ready, grace_seconds=PATIENCE_SECONDS)

    def pids(self, name: str) -> list[int]:
        """Return the process ids that `name` has printed so far."""
        return [int(line) for line in (self.directory / f"{name}.log").read_text().split()]

    def wait_for_pids(self, name: str, count: int) -> None:
        """Its failure, which has been seen once in hundreds of runs, says which of the processes live, and how."""
        try:
            wait_until(lambda: len(self.pids(name)) == count)
        except AssertionError as error:
            living = [
                (one.pid, one.status(), one.cmdline()[-1][:40])
                for child in self.children
                for one in tagged_processes(child.tag)
            ]
            raise AssertionError(f"{error}: printed {self.pids(name)}, living {living}") from error

    def has_printed(self, name: str, count: int) -> bool:
        return len(self.pids(name)) == count


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    yield tree
    for child in tree.children:
        child.kill()


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


def never() -> bool:
    return False


def is_suspended(pids: list[int]) -> bool:
    """The newest process; one that has not started yet, or has ended, is not suspended."""
    with suppress(psutil.NoSuchProcess):
        return bool(pids) and psutil.Process(pids[-1]).status() == psutil.STATUS_STOPPED
    return False


def test_stopping_a_child_kills_its_descendants(tree: Tree) -> None:
    program = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); {SLEEP}"])
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); {SLEEP}"], start_new_session=True)
print(os.getpid(), flush=True)
time.sleep(100)
"""
    child = tree.child("parent", program)
    child.start()
    tree.wait_for_pids("parent", 3)

    child.stop(grace_seconds=PATIENCE_SECONDS)

    wait_until(lambda: not any(map(is_alive, tree.pids("parent"))))


def test_descendants_of_a_crashed_child_are_killed_too(tree: Tree) -> None:
    program = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); {SLEEP}"])
"""
    child = tree.child("parent", program)
    child.start()
    wait_until(lambda: child.exit_code is not None and len(tree.pids("parent")) == 1)
    assert is_alive(tree.pids("parent")[0])

    child.stop(grace_seconds=PATIENCE_SECONDS)

    wait_until(lambda: not is_alive(tree.pids("parent")[0]))


def test_a_child_that_ignores_sigterm_is_killed(tree: Tree) -> None:
    program = (
        f"import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); {SLEEP}"
    )
    child = tree.child("stubborn", program)
    child.start()
    wait_until(lambda: len(tree.pids("stubborn")) == 1)

    child.stop(grace_seconds=0.1)

    assert child.exit_code == -9


def test_all_components_start_at_the_same_time(tree: Tree) -> None:
    names = ["first", "second"]
    program = f"print(1, flush=True); {SLEEP}"
    components = [tree.component(name, program, lambda: all(tree.pids(name) for name in names)) for name in names]

    Supervisor([[component] for component in components], never, print).start(timeout_seconds=PATIENCE_SECONDS)

    assert all(component.was_ready for component in components)


def test_a_component_that_ends_while_starting_is_reported_with_its_last_lines(tree: Tree) -> None:
    component = tree.component("broken", "raise SystemExit('no such disk')", is_ready=lambda: False)

    with pytest.raises(ComponentFailed, match=r"broken ended with code 1 while starting.*\n.*broken \| no such disk"):
        Supervisor([[component]], never, print).start(timeout_seconds=PATIENCE_SECONDS)


def test_a_component_that_is_killed_while_starting_is_restarted(tree: Tree) -> None:
    lines = list[str]()
    program = f"import os; print(os.getpid(), flush=True); {SLEEP}"

    def is_second() -> bool:
        if tree.has_printed("worker", 1) and is_alive(tree.pids("worker")[0]):
            psutil.Process(tree.pids("worker")[0]).kill()
        return tree.has_printed("worker", 2)

    component = tree.component("worker", program, is_second)
    Supervisor([[component]], never, lines.append).start(timeout_seconds=PATIENCE_SECONDS)

    assert component.was_ready
    assert lines == ["worker ended with code -9; restarting it"]


def test_a_component_that_gives_up_to_start_on_a_busy_machine_is_restarted(tree: Tree) -> None:
    lines, marker = list[str](), tree.directory / "busy"
    marker.touch()
    program = f"""
from pathlib import Path
marker = Path({str(marker)!r})
if marker.exists():
    marker.unlink()
    raise SystemExit(1)
{SLEEP}
"""
    component = tree.component("ray", program, lambda: not marker.exists() and component.child.exit_code is None)
    component.retries_start = True
    Supervisor([[component]], never, lines.append).start(timeout_seconds=PATIENCE_SECONDS)
    assert component.was_ready
    assert lines == ["ray ended with code 1; restarting it"]


def test_a_component_that_dies_before_the_others_are_ready_is_restarted(tree: Tree) -> None:
    lines, seen = list[str](), threading.Event()
    program = f"import os; print(os.getpid(), flush=True); {SLEEP}"
    service = tree.component("service", program, lambda: bool(tree.pids("service")))

    def is_agent_ready() -> bool:
        if service.was_ready and not seen.is_set():
            psutil.Process(tree.pids("service")[0]).terminate()
            seen.set()
        return tree.has_printed("service", 2)

    stages = [[service], [tree.component("agent", SLEEP, is_agent_ready)]]
    Supervisor(stages, never, lines.append).start(timeout_seconds=PATIENCE_SECONDS)

    assert service.was_ready
    assert lines == ["service ended with code -15; restarting it"]


def test_a_component_that_never_starts_is_not_restarted_for_ever(tree: Tree) -> None:
    component = tree.component("ray", "raise SystemExit('no such disk')", is_ready=lambda: False)
    component.retries_start = True
    supervisor = Supervisor([[component]], never, print, first_delay_seconds=0)
    with pytest.raises(ComponentFailed, match=r"ray ended with code 1, for the 4th time.*\n.*no such disk"):
        supervisor.start(timeout_seconds=PATIENCE_SECONDS)


def test_a_component_that_is_never_ready_is_reported(tree: Tree) -> None:
    component = tree.component("slow", SLEEP, is_ready=lambda: False)

    with pytest.raises(ComponentFailed, match="slow was not ready after"):
        Supervisor([[component]], never, print).start(timeout_seconds=0.1)


def test_stopping_while_a_component_starts_ends_the_wait(tree: Tree) -> None:
    stopping = threading.Event()

    def ready() -> bool:
        stopping.set()
        return False

    component = tree.component("slow", SLEEP, ready)
    Supervisor([[component]], stopping.is_set, print).start(timeout_seconds=100)

    assert not component.was_ready


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
    log, starts = tree.directory / "worker.log", itertools.count()
    log.touch()

    def command() -> list[str]:
        if 1 <= next(starts) <= 2 * MAX_FAILURES:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return [sys.executable, "-c", f"import os; print(os.getpid(), flush=True); {SLEEP}"]

    tree.children.append(ChildProcess(command, os.environ, log))
    component, lines = Component("worker", tree.children[0], lambda: True), list[str]()
    with supervised(component, say=lines.append):
        wait_until(lambda: tree.has_printed("worker", 1) and component.was_ready)
        psutil.Process(tree.pids("worker")[0]).kill()
        wait_until(lambda: tree.has_printed("worker", 2))
    assert lines[1].startswith("worker could not be started ([Errno 11] Resource temporarily unavailable)")


def test_a_component_that_cannot_be_started_again_for_long_ends_the_stack(tree: Tree) -> None:
    log, starts = tree.directory / "worker.log", itertools.count()
    log.touch()

    def command() -> list[str]:
        if next(starts):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return [sys.executable, "-c", SLEEP]

    tree.children.append(ChildProcess(command, os.environ, log))
    component = Component("worker", tree.children[0], lambda: True)
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

    log = tree.directory / "worker.log"
    log.touch()
    tree.children.append(ChildProcess(command, os.environ, log))
    component, lines = Component("worker", tree.children[0], answers, is_healthy=answers), list[str]()
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


def test_components_stop_in_reverse_order(tree: Tree, tmp_path: Path) -> None:
    log = tmp_path / "order"

    def program(name: str) -> str:
        leave = f"lambda *_: (open({str(log)!r}, 'a').write({name!r}), exit())"
        return f"import signal; signal.signal(signal.SIGTERM, {leave}); print(1, flush=True); {SLEEP}"

    names = ["a", "b", "c"]
    supervisor = Supervisor([[tree.component(name, program(name))] for name in names], never, print)
    supervisor.start(timeout_seconds=PATIENCE_SECONDS)
    wait_until(lambda: all(tree.pids(name) for name in names))

    supervisor.stop()

    assert log.read_text() == "cba"


def test_low_priority_applies_to_all_descendants_and_is_higher_until_the_component_is_ready(tree: Tree) -> None:
    print_pid = f"print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid, flush=True)"
    parent = f"import subprocess, sys; {print_pid}; {SLEEP}"
    served = threading.Event()
    component = tree.component("server", parent, served.is_set)
    component.low_priority = True
    component.start()
    wait_until(lambda: tree.has_printed("server", 1))
    child = psutil.Process(*tree.pids("server"))
    family = [child, psutil.Process(child.ppid())]
    component.check()
    assert {one.nice() for one in family} == {STARTING_PRIORITY}
    served.set()
    component.check()
    assert {one.nice() for one in family} == {LOW_PRIORITY}
