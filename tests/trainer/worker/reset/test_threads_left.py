"""Threads that an attempt leaves in a worker process are waited for, and keep the process from being used again."""

import _thread
import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm  # type: ignore[import-untyped]

from trainer.worker.reset.threads import ENDING_FILES, HARMLESS_FILES, KnownThreads, threads_left


class Slow(threading.Thread):
    """Its start goes on once its end has been waited for."""

    def __init__(self) -> None:
        super().__init__(target=lambda: None)
        self.begun, self.awaited = threading.Event(), threading.Event()

    def _bootstrap(self) -> None:
        self.begun.set()
        self.awaited.wait()
        super()._bootstrap()  # type: ignore[misc]


@pytest.fixture
def being_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """A thread whose `start` another thread has called, and not come back from."""
    thread = Slow()
    monkeypatch.setattr("trainer.worker.reset.threads.time.sleep", lambda _seconds: thread.awaited.set())
    starter = threading.Thread(target=thread.start)
    starter.start()
    thread.begun.wait()
    yield thread
    thread.awaited.set()
    starter.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.worker.reset.threads.THREADS_END_SECONDS", 0.01)


def test_a_thread_that_another_one_is_just_starting_is_waited_for(being_started: Slow) -> None:
    known = KnownThreads(listed=frozenset(threading.enumerate()) - {being_started})
    assert threads_left(known) == []
    assert being_started.awaited.is_set()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["left by the user", "Prefetcher-1", "tqdm_monitor", "asyncio_0"])
def test_a_thread_that_does_not_end_is_named_whatever_its_name(name: str) -> None:
    known, end = KnownThreads(), threading.Event()
    thread = threading.Thread(target=end.wait, name=name)
    thread.start()
    assert threads_left(known) == [name]
    end.set()
    thread.join()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("prepare", [int, threading.current_thread])
def test_a_thread_that_threading_does_not_know_is_named(prepare: Callable[[], Any]) -> None:
    known, begun, end, ended = KnownThreads(), *(threading.Event() for _ in range(3))

    def upload() -> None:
        prepare()
        begun.set()
        end.wait()
        ended.set()

    _thread.start_new_thread(upload, ())
    begun.wait()
    assert threads_left(known) == ["upload of test_threads_left.py"]
    assert threads_left(KnownThreads()) == []
    end.set()
    ended.wait()


@pytest.mark.usefixtures("impatient")
def test_a_job_that_runs_on_in_asyncios_executor_is_named() -> None:
    known, begun, end = KnownThreads(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        end.wait()

    async def leave_a_job() -> None:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, job)
        await loop.run_in_executor(None, begun.wait)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_a_job())
    assert threads_left(known) == ["asyncio_0"]
    end.set()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.mark.usefixtures("impatient")
def test_threads_of_libraries_that_wait_for_work_do_no_harm() -> None:
    known = KnownThreads()
    with tqdm(mininterval=0, maxinterval=0.1):
        assert any(thread.name == "tqdm_monitor" for thread in threading.enumerate())
        assert threads_left(known) == []


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_thread_that_prefetches_a_dataset_does_no_harm() -> None:
    from ray.data._internal.block_batching.util import WaitBlockPrefetcher  # noqa: PLC0415 - heavy

    known = KnownThreads()
    prefetcher = WaitBlockPrefetcher()
    assert threads_left(known) == []
    prefetcher.stop()


def test_the_files_of_threads_that_do_no_harm_exist() -> None:
    for file in HARMLESS_FILES + ENDING_FILES:
        package, _, rest = file.removeprefix("/").partition("/")
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        assert (Path(found.origin).parent / rest).exists()


def test_a_pool_without_work_does_no_harm_and_one_that_works_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's compiler keeps a pool, so that every trial that compiles would get new processes."""
    known, begun = KnownThreads(), threading.Event()

    def work() -> None:
        begun.set()
        time.sleep(0.5)

    with ThreadPoolExecutor(2, thread_name_prefix="pool") as pool:
        pool.submit(int).result()
        assert threads_left(known) == []
        pool.submit(work)
        begun.wait()
        monkeypatch.setattr("trainer.worker.reset.threads.THREADS_END_SECONDS", 0.01)
        assert threads_left(known) == ["pool_0"]
