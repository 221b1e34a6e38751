"""Processes that an attempt leaves keep its process from being used again, unless a library keeps them."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from trainer.worker.reset.processes import started_processes, why_processes_are_left

FOREVER = "import time; print(flush=True); time.sleep(600)"

LEAVES_ONE = """
import os
import time
import psutil
from trainer.worker.reset import processes

def sleeps(process):
    try:
        return os.getpgid(process.pid) == os.getpgrp() and process.cmdline() == ["sleep", "600"]
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False

processes.PROCESSES_END_SECONDS = 0.0
known = processes.started_processes()
os.system("sleep 600 >/dev/null 2>&1 &")
while not any(map(sleeps, psutil.process_iter())):
    time.sleep(0.01)  # it has no command line at first
print(processes.why_processes_are_left(known))
print(processes.why_processes_are_left(processes.started_processes()))
"""

USES_A_FORK_SERVER = """
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver
from trainer.worker.reset import pools, processes
known = processes.started_processes()
for value in ("first", "second"):
    os.environ["VARIABLE_OF_TEST"] = value
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as pool:
        seen = pool.submit(os.getenv, "VARIABLE_OF_TEST").result()
    server = forkserver._forkserver._forkserver_pid
    runs = [server in processes.started_processes()]
    for before in (frozenset({server}), known):
        pools.end_forkserver(before)
        runs.append(server in processes.started_processes())
    print(seen, *runs, processes.why_processes_are_left(known))
"""

LEAVES_A_FORK = """
import multiprocessing
import time
from trainer.worker.reset import pools, processes
processes.PROCESSES_END_SECONDS = 0.0
known = processes.started_processes()
multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(600,)).start()
pools.end_forkserver(known)
print(processes.why_processes_are_left(known), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.worker.reset.processes.PROCESSES_END_SECONDS", 0.0)


def test_a_process_that_runs_on_is_named_and_one_that_was_there_before_is_not() -> None:
    known = started_processes()
    with subprocess.Popen([sys.executable, "-c", FOREVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        reason = why_processes_are_left(known)
        assert why_processes_are_left(started_processes()) is None
        process.kill()
    assert reason == f"the training function left processes running: {f'{sys.executable} -c {FOREVER}'[:120]}"
    assert why_processes_are_left(known) is None


def test_one_that_ends_soon_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.worker.reset.processes.PROCESSES_END_SECONDS", 60.0)
    known = started_processes()
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
    process.start()
    assert why_processes_are_left(known) is None
    process.join()


def test_what_libraries_keep_does_no_harm() -> None:
    known = started_processes()
    spawned = multiprocessing.get_context("spawn").Process(target=int)
    spawned.start()  # with a resource tracker, which stays
    spawned.join()
    assert why_processes_are_left(known) is None


def test_each_trial_has_a_fork_server_with_its_own_environment() -> None:
    """It fails if multiprocessing's private names have changed, too."""
    done = subprocess.run([sys.executable, "-c", USES_A_FORK_SERVER], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["first True True False None", "second True True False None"]


def test_a_process_that_the_fork_server_has_forked_is_named() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES_A_FORK], process_group=0, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        reason = process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
    assert reason.startswith("the training function left processes running: ")
    assert sys.executable[:50] in reason


@pytest.mark.parametrize(
    ("leads", "found"), [(True, "the training function left processes running: "), (False, "None")]
)
def test_one_in_the_background_of_a_shell_is_named_where_this_process_leads_its_group(leads: bool, found: str) -> None:
    """As Ray's workers do."""
    with subprocess.Popen(["sleep", "600"], process_group=0) as other:
        group = 0 if leads else other.pid
        with subprocess.Popen(
            [sys.executable, "-c", LEAVES_ONE], process_group=group, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            answers = process.stdout.read().splitlines()
        for one in {other.pid, group or process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one, signal.SIGKILL)
    assert answers[0].startswith(found)
    assert ("sleep 600" in answers[0]) is leads
    assert answers[1] == "None"
