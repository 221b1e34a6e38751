"""Child processes: started in order, and stopped with all their descendants."""

import threading
from pathlib import Path

import psutil
import pytest

from service.stack.child_process import LOW_PRIORITY, STARTING_PRIORITY
from service.stack.supervisor import ComponentFailed, Supervisor
from tests.processes import is_alive
from tests.timeouts import PATIENCE_SECONDS, wait_until
from tests.unit.stack.process_tree import SLEEP, Tree, never

pytestmark = pytest.mark.slow


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
