"""What runs for ever leaves the processor to others between its rounds."""

import threading

from service.background.loop import Loop


class Busy:
    """Work that always finds something to do, and says when it has done it `count` times."""

    name = "busy"

    def __init__(self, every: float, count: int) -> None:
        self.every = every
        self.enough = threading.Event()
        self._left = count

    def run_once(self) -> int:
        self._left -= 1
        if self._left <= 0:
            self.enough.set()
        return 1


def are_done(every: float, count: int, *, within: float) -> bool:
    """Whether so many rounds are, in so many seconds."""
    work = Busy(every, count)
    loop = Loop(work)
    loop.start()
    done = work.enough.wait(within)
    loop.stop()
    return done


def test_rounds_follow_one_another_no_faster_than_they_should() -> None:
    assert are_done(3600, 1, within=30)
    assert not are_done(3600, 2, within=0.3)


def test_a_round_that_took_longer_is_followed_at_once() -> None:
    assert are_done(0, 20, within=30)
