"""Threads that an attempt leaves in a worker process are waited for, and keep the process from being used again."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainer.worker.reset.threads import threads_left


class Slow(threading.Thread):
    """Its start goes on once its end has been waited for."""

    def __init__(self) -> None:
        super().__init__(target=lambda: None)
        self.begun, self.joined = threading.Event(), threading.Event()

    def _bootstrap(self) -> None:
        self.begun.set()
        self.joined.wait()
        super()._bootstrap()  # type: ignore[misc]

    def join(self, timeout: float | None = None) -> None:
        try:
            super().join(timeout)
        finally:
            self.joined.set()


@pytest.fixture
def being_started() -> Iterator[Slow]:
    """A thread whose `start` another thread has called, and not come back from."""
    thread = Slow()
    starter = threading.Thread(target=thread.start)
    starter.start()
    thread.begun.wait()
    yield thread
    thread.joined.set()
    starter.join()


def test_a_thread_that_another_one_is_just_starting_is_waited_for(being_started: Slow) -> None:
    known = frozenset(threading.enumerate()) - {being_started}
    assert threads_left(known) == []
    assert being_started.joined.is_set()


def test_a_thread_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.worker.reset.threads.THREADS_END_SECONDS", 0.01)
    known, end = frozenset(threading.enumerate()), threading.Event()
    thread = threading.Thread(target=end.wait, name="left by the user")
    thread.start()
    assert threads_left(known) == ["left by the user"]
    end.set()
    thread.join()


def test_a_pool_without_work_does_no_harm_and_one_that_works_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's compiler keeps a pool, so that every trial that compiles would get new processes."""
    known, begun = frozenset(threading.enumerate()), threading.Event()

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
