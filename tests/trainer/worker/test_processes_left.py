"""Processes that an attempt leaves keep its process from being used again, unless a library keeps them."""

import multiprocessing
import subprocess
import sys
import time

import pytest

from trainer.worker.reset.processes import child_processes, why_processes_are_left

FOREVER = "import time; print(flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.worker.reset.processes.PROCESSES_END_SECONDS", 0.0)


def test_a_process_that_runs_on_is_named_and_one_that_was_there_before_is_not() -> None:
    known = child_processes()
    with subprocess.Popen([sys.executable, "-c", FOREVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        reason = why_processes_are_left(known)
        assert why_processes_are_left(child_processes()) is None
        process.kill()
    assert reason == f"the training function left processes running: {f'{sys.executable} -c {FOREVER}'[:60]}"
    assert why_processes_are_left(known) is None


def test_one_that_ends_soon_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.worker.reset.processes.PROCESSES_END_SECONDS", 60.0)
    known = child_processes()
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
    process.start()
    assert why_processes_are_left(known) is None
    process.join()


def test_what_libraries_keep_does_no_harm() -> None:
    known = child_processes()
    spawned = multiprocessing.get_context("spawn").Process(target=int)
    spawned.start()  # with a resource tracker, which stays
    spawned.join()
    assert why_processes_are_left(known) is None
