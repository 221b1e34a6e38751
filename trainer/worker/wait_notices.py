"""Says in a trial's log that a rank has waited long: in `ray.train.report()`, or for data.

Ray warns of both, too, but in the logs of processes that its users do not see.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from trainer.ray_train.train_session import waiting_report
from trainer.worker.datasets.dataset_shards import DataWait

NOTICE_SECONDS = 60.0
"""As often as Ray (`RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S`)."""

LOOK_SECONDS = 5.0

logger = logging.getLogger("paceline")


class LongWait:
    """Tells when to speak of a wait: `seconds_due` is called again and again with what is waited for, or None."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._what: Hashable | None = None
        self._since = self._said_at = 0.0

    def seconds_due(self, what: Hashable | None) -> float | None:
        """For how long it has been waited for, once in each `NOTICE_SECONDS` of a wait; otherwise None."""
        now = self._clock()
        if what != self._what or what is None:
            self._what, self._since, self._said_at = what, now, now
        elif now - self._said_at >= NOTICE_SECONDS:
            self._said_at = now
            return now - self._since
        return None


class WaitNotices:
    """`look` is called again and again with the number of the report that the rank is in, and its wait for data.

    Either may be None.
    """

    def __init__(self, rank: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rank = rank
        self._in_report, self._for_data = LongWait(clock), LongWait(clock)

    def look(self, report: int | None, data: DataWait | None = None) -> None:
        if (seconds := self._in_report.seconds_due(report)) is not None and report is not None:
            logger.warning(
                "rank %d has been in ray.train.report() for %d s (its report %d): it waits for the other ranks, which "
                "must report equally often, or its checkpoint is still being saved",
                self._rank,
                seconds,
                report + 1,
            )
        if (seconds := self._for_data.seconds_due(data)) is not None and data is not None:
            logger.warning("rank %d has waited for %s for %d s; usually, %s", self._rank, data.what, seconds, data.why)


@contextmanager
def noticing_waits(rank: int, data_wait: Callable[[], DataWait | None]) -> Iterator[None]:
    """Look in a thread of its own as long as this context lasts. A single rank may wait, too: for data."""
    ended = threading.Event()
    thread = threading.Thread(target=_look, args=(rank, data_wait, ended), name="paceline-wait-notices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _look(rank: int, data_wait: Callable[[], DataWait | None], ended: threading.Event) -> None:
    notices = WaitNotices(rank)
    while not ended.wait(LOOK_SECONDS):
        notices.look(waiting_report(), data_wait())
