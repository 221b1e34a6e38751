"""Says in a trial's log that a rank has been in `ray.train.report()` for long.

Ray warns of it, too, but in the log of a process that its users do not see.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainer.ray_train.train_session import waiting_report

NOTICE_SECONDS = 60.0
"""As often as Ray (`RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S`)."""

LOOK_SECONDS = 5.0

logger = logging.getLogger("paceline")


class WaitNotices:
    """`look` is called again and again with the number of the report that the rank is in, or None."""

    def __init__(self, rank: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rank = rank
        self._clock = clock
        self._report: int | None = None
        self._since = self._said_at = 0.0

    def look(self, report: int | None) -> None:
        now = self._clock()
        if report != self._report or report is None:
            self._report, self._since, self._said_at = report, now, now
        elif now - self._said_at >= NOTICE_SECONDS:
            self._said_at = now
            logger.warning(
                "rank %d has been in ray.train.report() for %d s (its report %d): it waits for the other ranks, which "
                "must report equally often, or its checkpoint is still being saved",
                self._rank,
                now - self._since,
                report + 1,
            )


@contextmanager
def noticing_waits(rank: int, world_size: int) -> Iterator[None]:
    """Look in a thread of its own as long as this context lasts. A single rank never waits, so it needs no thread."""
    if world_size == 1:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_look, args=(rank, ended), name="paceline-wait-notices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _look(rank: int, ended: threading.Event) -> None:
    notices = WaitNotices(rank)
    while not ended.wait(LOOK_SECONDS):
        notices.look(waiting_report())
