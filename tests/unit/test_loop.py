"""The background loop: its pauses between calls of the work."""

import itertools
import re
import threading
from time import monotonic

import pytest

from service.background.loop import MESSAGE_LENGTH, Loop
from tests.timeouts import PATIENCE_SECONDS, wait_until

HOUR = 3600.0


class Busy:
    """Work that sets `enough` after `count` calls."""

    name = "busy"
    every = HOUR

    def __init__(self, count: int, *, is_behind: bool = False) -> None:
        self.is_behind = is_behind
        self.enough = threading.Event()
        self._left = count

    def run_once(self) -> int:
        self._left -= 1
        if self._left <= 0:
            self.enough.set()
        return 1


def is_called_often_enough(work: Busy, *, within: float) -> bool:
    """Whether the loop calls the work `count` times in the given seconds."""
    loop = Loop(work)
    loop.start()
    done = work.enough.wait(within)
    loop.stop()
    return done


def test_an_error_that_quotes_a_whole_page_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/readyz` shows it."""
    work = Busy(1)

    def fail() -> int:
        work.enough.set()
        raise ValueError("<html> " * 100_000)

    monkeypatch.setattr(work, "run_once", fail)
    loop = Loop(work)
    loop.start()
    assert work.enough.wait(30)
    loop.stop(30)
    error = str(loop.health()["error"])
    assert error.startswith("ValueError: <html>")
    assert len(error) == MESSAGE_LENGTH


class Failing(Busy):
    """Its calls raise these errors, one each, and then succeed."""

    def __init__(self, *errors: BaseException) -> None:
        super().__init__(len(errors) + 1, is_behind=True)
        self.every = 0.0
        self._errors = iter(errors)

    def run_once(self) -> int:
        super().run_once()
        if error := next(self._errors, None):
            raise error
        return 1


def test_an_error_that_would_end_a_process_does_not_end_the_loop() -> None:
    """Libraries in Rust raise a `PanicException`, which is no `Exception`."""
    assert is_called_often_enough(Failing(SystemExit(1), KeyboardInterrupt()), within=PATIENCE_SECONDS)


def test_the_log_has_each_kind_of_error_once(caplog: pytest.LogCaptureFixture) -> None:
    group = ExceptionGroup("2 of 3 failed", [KeyError("c"), ValueError("d")])
    errors = ValueError("a"), ValueError("b"), group, KeyError("e"), ValueError("f"), OSError("g")
    assert is_called_often_enough(Failing(*errors), within=PATIENCE_SECONDS)
    logged = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert logged == ["a", str(group), "g"]


@pytest.mark.parametrize(
    ("every", "pauses"),
    [(1.0, [2, 4, 5, 5, 5]), (60.0, [5, 10, 20, 40, 60]), (HOUR, [5, 10, 20, 40, 80])],
)
def test_work_that_fails_on_is_tried_ever_more_rarely_down_to_its_interval(every: float, pauses: list[float]) -> None:
    work = Failing(*(OSError("the disk fails") for _ in range(20)))
    work.every = every
    loop = Loop(work)
    assert [loop._run_once() for _ in pauses] == pauses
    assert max(loop._run_once() for _ in range(15)) == max(pauses[-1], every)


def test_the_next_call_waits_for_the_interval() -> None:
    assert is_called_often_enough(Busy(1), within=30)
    assert not is_called_often_enough(Busy(2), within=0.3)


def test_work_that_is_behind_is_called_again_immediately() -> None:
    assert is_called_often_enough(Busy(20, is_behind=True), within=30)


def test_work_that_took_longer_than_its_interval_is_called_again_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(step=HOUR)
    monkeypatch.setattr("service.background.loop.monotonic", lambda: next(hours))
    assert is_called_often_enough(Busy(20), within=30)


class Hanging:
    """Work whose call returns when it is released."""

    name = "hanging"
    every = HOUR
    is_behind = False

    def __init__(self) -> None:
        self.began = threading.Event()
        self.released = threading.Event()

    def run_once(self) -> None:
        self.began.set()
        self.released.wait()


@pytest.mark.parametrize("needed", [True, False])
def test_needed_work_whose_call_does_not_return_is_not_well(needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Hanging()
    loop = Loop(work, needed=needed)
    loop.start()
    assert work.began.wait(PATIENCE_SECONDS)
    assert loop.health()["ok"]
    with monkeypatch.context() as patch:
        patch.setattr("service.background.loop.monotonic", lambda: monotonic() + HOUR)
        health = loop.health()
        assert health["ok"] is not needed
        if needed:
            assert re.fullmatch(r"a call has not returned for 36\d\d s", health["error"])
    work.released.set()
    wait_until(lambda: loop.health()["succeeded_at"])
    assert loop.health()["ok"]
    loop.stop()


def test_work_that_waits_for_its_next_call_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Hanging()
    work.released.set()
    loop = Loop(work)
    loop.start()
    wait_until(lambda: loop.health()["succeeded_at"])
    monkeypatch.setattr("service.background.loop.monotonic", lambda: monotonic() + HOUR)
    wait_until(lambda: loop.health()["ok"])
    loop.stop()
