"""What runs for ever leaves the processor to others between its rounds."""

import itertools
import threading

import pytest

from service.background.loop import Loop

HOUR = 3600.0


class Busy:
    """Work that always finds something to do, and says when it has done it `count` times."""

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


def is_done(work: Busy, *, within: float) -> bool:
    """Whether it does as much as it says it will, in so many seconds."""
    loop = Loop(work)
    loop.start()
    done = work.enough.wait(within)
    loop.stop()
    return done


def test_a_round_does_not_follow_at_once() -> None:
    assert is_done(Busy(1), within=30)
    assert not is_done(Busy(2), within=0.3)


def test_a_round_that_left_something_to_do_is_followed_at_once() -> None:
    assert is_done(Busy(20, is_behind=True), within=30)


def test_a_round_that_took_longer_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(step=HOUR)
    monkeypatch.setattr("service.background.loop.monotonic", lambda: next(hours))
    assert is_done(Busy(20), within=30)
