"""Says in a trial's log that a rank has waited long: in `ray.train.report()`, or for data.

Ray warns of both, too, but in the logs of processes that its users do not see.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from trainer.ray_train.train_session import waiting_report
from trainer.worker.datasets.shard_waits import DataWait

NOTICE_SECONDS = 60.0
"""How long a wait lasts before it is first spoken of; the next notice comes after twice as long, and so on."""

LOOK_SECONDS = 5.0

logger = logging.getLogger("paceline")


class LongWait:
    """Tells when to speak of a wait: `seconds_due` is called again and again with what is waited for, or None."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._what: Hashable | None = None
        self._since = self._said_at = 0.0
        self._interval = NOTICE_SECONDS

    def seconds_due(self, what: Hashable | None) -> float | None:
        """For how long it has been waited for, if a notice is due; otherwise None."""
        now = self._clock()
        if what != self._what or what is None:
            self._what, self._since, self._said_at, self._interval = what, now, now, NOTICE_SECONDS
        elif now - self._said_at >= self._interval:
            self._said_at, self._interval = now, 2 * self._interval
            return now - self._since
        return None


class WaitNotices:
    """`look` is called again and again with the number of the report that the rank is in, and its wait for data.

    Either may be None.
    """

    def __init__(self, rank: int, world_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rank = rank
        self._others = "it waits for the other ranks, which must report equally often, or " if world_size > 1 else ""
        self._in_report, self._for_data = LongWait(clock), LongWait(clock)

    def look(self, report: int | None, data: DataWait | None = None) -> None:
        if (seconds := self._in_report.seconds_due(report)) is not None and report is not None:
            logger.warning(
                "rank %d has been in ray.train.report() for %d s (its report %d): "
                "%sits checkpoint is still being saved",
                self._rank,
                seconds,
                report + 1,
                self._others,
            )
        if (seconds := self._for_data.seconds_due(data)) is not None and data is not None:
            logger.warning("rank %d has waited for %s for %d s; usually, %s", self._rank, data.what, seconds, data.why)


@contextmanager
def noticing_waits(rank: int, world_size: int, data_wait: Callable[[], DataWait | None]) -> Iterator[None]:
    """Look in a thread of its own as long as this context lasts. A single rank may wait, too: for data."""
    ended = threading.Event()
    watched = WaitNotices(rank, world_size), data_wait, ended
    thread = threading.Thread(target=_look, args=watched, name="paceline-wait-notices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _look(notices: WaitNotices, data_wait: Callable[[], DataWait | None], ended: threading.Event) -> None:
    while not ended.wait(LOOK_SECONDS):
        notices.look(waiting_report(), data_wait())
